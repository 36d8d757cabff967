# Thin wrappers over scripts/, which run by themselves on machines without make.
.PHONY: demo test lint setup
demo:
	@scripts/demo.sh
test:
	@scripts/test.sh
lint:
	@scripts/lint.sh
setup:
	@scripts/setup.sh
