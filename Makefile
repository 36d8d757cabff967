# Thin wrappers over scripts/, which run by themselves on machines without make.
.PHONY: demo test setup
demo:
	@scripts/demo.sh
test:
	@scripts/test.sh
setup:
	@scripts/setup.sh
