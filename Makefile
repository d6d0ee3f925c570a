# `make check` is what CI runs. Everything needs stable Rust and nothing else;
# steps whose tool is missing say so and are skipped.

CARGO ?= cargo

.PHONY: check fmt lint test isa docs memory build format

check: fmt lint test isa docs memory

# --- the parts of `check`

fmt:
	$(CARGO) fmt --all -- --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package sparing --features train --all-targets --locked -- -D warnings

# nextest runs the test binaries side by side; documentation tests are cargo's own.
test:
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --workspace --locked; \
	else \
		echo "cargo-nextest is not installed: using cargo test"; \
		$(CARGO) test --workspace --locked --lib --bins --tests; \
	fi
	$(CARGO) test --workspace --locked --doc
	$(CARGO) test --package sparing --features train --locked --test train --test transfer --test lra --test optimize_train

# The engine once more on lesser instruction sets.
isa:
	./.ci/isa

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# The kernels hold all of the project's unsafe code: their tests once more under the address sanitizer, on the portable paths.
memory:
	./.ci/memory

# --- for people

build:
	$(CARGO) build --release --locked --package sparing

format:
	$(CARGO) fmt --all
