# The service with its embedded worker. Data (database, caches) lives on the volume /data.
#   docker build -t greenfast . && docker run -e GREENFAST_TOKEN=... -p 127.0.0.1:8741:8741 -v greenfast:/data greenfast
FROM python:3.12-slim

# The emulator compiles candidates with g++.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/greenfast
COPY pyproject.toml README.md ./
COPY search ./search
COPY db ./db
COPY app ./app
COPY kernel_templates ./kernel_templates
COPY recordings ./recordings
# Editable: kernel templates and recordings are data beside the packages.
RUN pip install --no-cache-dir --editable .

RUN useradd --create-home --uid 10001 greenfast && mkdir /data && chown greenfast /data
USER greenfast
ENV GREENFAST_DATA=/data
VOLUME /data
EXPOSE 8741
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8741/healthz', timeout=4)"]

# Every bind that is not loopback needs GREENFAST_TOKEN; without it the service refuses to start and says so.
CMD ["greenfast", "serve", "--host", "0.0.0.0", "--port", "8741"]
