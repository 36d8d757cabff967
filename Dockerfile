# The service with one embedded worker. Data (database, caches) live on the volume /data.
#   docker build -t greenfast . && docker run -e GREENFAST_TOKEN=... -p 127.0.0.1:8741:8741 -v greenfast:/data greenfast
# With CuPy, for a GPU: docker build --build-arg EXTRAS=cuda13 -t greenfast-gpu .
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY greenfast ./greenfast
COPY search ./search
COPY db ./db
COPY app ./app
COPY kernel_templates ./kernel_templates
COPY recordings ./recordings
COPY docs ./docs
COPY tests/kernels ./tests/kernels
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
# The emulator compiles candidates with g++.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
ARG EXTRAS=""
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/greenfast-*.whl)${EXTRAS:+[$EXTRAS]}"

RUN useradd --create-home --uid 10001 greenfast && mkdir /data && chown greenfast /data
USER greenfast
WORKDIR /data
ENV GREENFAST_DATA=/data
VOLUME /data
EXPOSE 8741
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8741/healthz', timeout=4)"]

# Every address that is not loopback needs GREENFAST_TOKEN; without it the service refuses to start and names the variable.
CMD ["greenfast", "serve", "--host", "0.0.0.0", "--port", "8741"]
