# The two commands: `make run` and `make test`. Both install what is missing (see scripts/setup).

REPRIEVE = target/release/reprieve
EVALUATION = rcu-memory rcu-clone rcu-postmark

.PHONY: run test lint build setup record figures audit clean

# Two repetitions of each workload, in about five minutes. For more: reprieve run SCENARIO --repeat 10
run: build
	$(REPRIEVE) run $(EVALUATION) --repeat 2 --set run.redo_limit=1 --html report.html --json report.json
	@echo "The figures are in report.html."

build: setup
	cargo build --release --locked

# Boots real guests; where that is impossible the tests fail rather than pass unrun.
test: setup
	REPRIEVE_TEST_REQUIRE_IMAGE=1 cargo test --workspace --release --locked

lint:
	scripts/setup --dev
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --release --locked --quiet
	! command -v shellcheck >/dev/null || shellcheck scripts/* guest/init .ci/run

setup:
	scripts/setup

# The recorded runs behind the documentation, and its figures made from them.
record: build
	scripts/record
figures: build
	scripts/figures

# Licences and sources of all dependencies; builds cargo-deny first.
audit:
	cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check licenses bans sources

clean:
	cargo clean
	rm -f report.html report.json
