# The two commands: `make run`, which needs nothing but Rust, and `make test`, which installs what is missing for
# real guests (see scripts/setup).

REPRIEVE = target/release/reprieve
# Together with --workspace: with one package alone, cargo would build most dependencies once more, for fewer of their features.
EBPF = reprieve-linux/ebpf,reprieve-vm/ebpf
EVALUATION = rcu-memory rcu-clone rcu-postmark
DELETE_FREE = delete-free-delay delete-free-shared delete-free-spread delete-free-alone delete-free-stalled \
    delete-free-cost delete-free-writer
VALUES = value-arc-swap value-arc-swap-full value-arc-swap-cache value-left-right value-std-rwlock \
    value-crossbeam-epoch value-haphazard value-reprieve value-reprieve-load

.PHONY: run test test-fallback check-targets aarch64 asan package-test mutants wishes signals torture hostile bench peers bench-rcu \
    bench-values bench-lookups confusion cost-in-guest engines python lint build setup record figures book audit clean

# All three workloads on the simulator, in less than a minute. On real guests: reprieve run rcu-memory --on vm
run: build
	$(REPRIEVE) run $(EVALUATION) --html report.html --json report.json
	@echo "The figures are in report.html."

build:
	cargo build --release --locked || scripts/hint

# Boots real guests, builds the peers, and starts a Prometheus and a Slurm; where that is impossible the tests fail rather than pass
# unrun.
test:
	scripts/setup --guests --peers --ebpf --prometheus --slurm --python
	REPRIEVE_TEST_REQUIRE_IMAGE=1 REPRIEVE_TEST_REQUIRE_PEERS=1 REPRIEVE_TEST_REQUIRE_PROMETHEUS=1 REPRIEVE_TEST_REQUIRE_SLURM=1 \
	    cargo test --workspace --release --locked --no-fail-fast || scripts/hint
	cargo test -p reprieve-rcu --release --locked --features tracing --test tracing
	REPRIEVE_TEST_REQUIRE_IMAGE=1 \
	    cargo test --workspace --release --locked --features $(EBPF) --lib --test ebpf -- ebpf
	RUSTFLAGS='--cfg shuttle' cargo test -p reprieve-rcu --release --locked --lib shuttle
	RUSTFLAGS='--cfg loom' cargo test -p reprieve-rcu --release --locked --lib loom
	scripts/valgrind
	scripts/python

# The half of reprieve-rcu that other systems use, run here.
test-fallback:
	RUSTFLAGS='--cfg reprieve_fallback' CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/fallback \
	    cargo test -p reprieve-rcu --release --locked --no-fail-fast

# Whether reprieve-rcu compiles for other systems: those whose standard library, or its source, is installed.
check-targets:
	scripts/check-targets

# reprieve-rcu's tests on an emulated aarch64 machine; five minutes or so.
aarch64:
	scripts/setup --aarch64
	scripts/aarch64

# reprieve-rcu's tests under AddressSanitizer, with and without restartable sections; five minutes or so.
asan:
	scripts/asan

# Packs reprieve-rcu as it would be published, and lets a program that depends on it use it.
package-test:
	scripts/package-test

# What users set while `reprieve migrate` moves tasks stays: 1,000 tasks of each form that bind themselves, here, and in guests
# of two vCPUs and of four. Half an hour or so; nothing else should run.
wishes: setup
	REPRIEVE_TEST_PINS=1334 cargo test -p reprieve-linux --release --locked --test migrate_family -- --nocapture --test-threads 1
	REPRIEVE_TEST_PINS=1334 cargo test -p reprieve --release --locked --test wishes -- --nocapture --test-threads 1
	REPRIEVE_TEST_REQUIRE_IMAGE=1 REPRIEVE_TEST_PINS=1334 cargo test -p reprieve-vm --release --locked --test family -- \
	    --nocapture --test-threads 1 nothing

# Signals at 200 moments by chance, for `migrate --apply` and for a run on real guests, and 100 kills of `boost --apply`: nothing
# is left. 100 kills and 100 full disks for `record --hindsight`, of which at most a second is lost, and for `sweep`, of which no finished
# run is. Three quarters of an hour or so.
signals: setup
	cargo test -p reprieve --release --locked --test migrate -- --ignored --nocapture at_moments
	REPRIEVE_TEST_REQUIRE_IMAGE=1 cargo test -p reprieve --release --locked --test cleanup -- --ignored --nocapture at_moments
	REPRIEVE_TEST_REQUIRE_IMAGE=1 REPRIEVE_BOOST_KILLS=100 \
	    cargo test -p reprieve --release --locked --test boost_faults -- --nocapture killed_at_any_moment
	REPRIEVE_TEST_KILLS=100 cargo test -p reprieve-hindsight --release --locked --test killed -- --nocapture
	REPRIEVE_TEST_KILLS=100 REPRIEVE_TEST_FULL_DISKS=100 \
	    cargo test -p reprieve --release --locked --test hindsight -- --nocapture kill_leaves full_disk
	REPRIEVE_TEST_KILLS=100 REPRIEVE_TEST_FULL_DISKS=100 cargo test -p reprieve --release --locked --test sweep -- --nocapture

# Weakens reprieve-rcu in one place at a time; each time a test must fail. Ten minutes or so.
mutants:
	scripts/mutants

# Ten minutes of torture for reprieve-rcu, recorded.
torture:
	cargo run -p reprieve-rcu --release --locked --example torture -- 50 --json crates/rcu/records/torture.json

# Guests that mean harm: their kernel writes over what the host reads of it, and their runner says anything; 1,000 rounds
# each, with checks for overflow. And 100,000 damaged images of a kernel whose callbacks are walked. Ten minutes or so; `make test`
# does a few. A round that fails says its seed:
#   make hostile SEED=17
SEED = 1
hostile: setup
	REPRIEVE_TEST_REQUIRE_IMAGE=1 REPRIEVE_HOSTILE_ROUNDS=1000 REPRIEVE_HOSTILE_SEED=$(SEED) \
	    CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
	    CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/checked \
	    cargo test -p reprieve-vm --release --locked --test hostile --test faults -- --nocapture
	REPRIEVE_HOSTILE_IMAGES=100000 REPRIEVE_HOSTILE_SEED=$(SEED) \
	    CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
	    CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/checked \
	    cargo test -p reprieve-vm --release --locked --lib -- --nocapture whatever_the_memory_holds

# How fast the simulator is, in less than three minutes; best on a machine that does nothing else. The recorded run:
#   cargo bench -p reprieve-sim --bench speed -- --json $PWD/crates/sim/benches/recorded.json
bench:
	cargo bench -p reprieve-sim --bench speed --locked

# The programs that `reprieve run --on threads` starts, one for each scheme, into target/peers.
peers:
	scripts/setup --peers
	$(MAKE) -C peers OUT=$(CURDIR)/target/peers

# The Python package, installed into target/python, and its tests.
python:
	scripts/setup --python
	scripts/python

# How long deleted memory waits under each scheme, on two CPUs that do nothing else; about 30 minutes.
bench-rcu: build peers
	$(REPRIEVE) run $(DELETE_FREE) --json delete-free.json --html delete-free.html
	@echo "The figures are in delete-free.html."

# The cost of reading one value beyond a pointer's load, in interleaved rounds on two CPUs that do nothing else; three
# minutes. The recorded run: make bench-values RECORD=--json=$PWD/crates/rcu/records/values.json
bench-values: peers
	target/peers/rounds $(RECORD) --zero value-bare $(VALUES)

# The cost of a look-up, one reader and two CPUs that do nothing else; ten minutes. In `RcuMap` beyond the same look-up
# without protection, among few entries, among many, and many at a time; and in one table under each scheme, beyond none.
# The recorded runs: make bench-lookups RECORDS=$PWD/crates/rcu/records
LOOKUPS = lookup-reprieve lookup-papaya lookup-papaya-pinned lookup-std
SCHEMES = reprieve-chain reprieve-restartable reprieve-locked haphazard crossbeam-epoch liburcu-memb
ROUNDS = target/peers/rounds $(if $(RECORDS),--json $(RECORDS)/$(1).json)
bench-lookups: peers
	$(call ROUNDS,lookups-1024) --zero lookup-reprieve-bare $(LOOKUPS) -- --entries 1024
	$(call ROUNDS,lookups-4M) --zero lookup-reprieve-bare $(LOOKUPS)
	$(call ROUNDS,lookups-4M-together) --zero lookup-reprieve-bare $(LOOKUPS) -- --together
	$(call ROUNDS,schemes-1024) --zero rust-none $(SCHEMES) -- --readers 1 --deletes-per-s 0 --entries 1024
	$(call ROUNDS,schemes-4M) --zero rust-none $(SCHEMES) -- --readers 1 --deletes-per-s 0

lint:
	scripts/setup --dev --ebpf
	cargo fmt --all --check
	cargo fmt --manifest-path python/Cargo.toml --check
	# With all features at once, which cost a build each. What is compiled only without one, `make test` compiles.
	cargo clippy --workspace --features $(EBPF),reprieve-rcu/tracing --all-targets --release --locked -- -D warnings || scripts/hint
	RUSTFLAGS='--cfg reprieve_fallback -D warnings' CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/fallback \
	    cargo check -p reprieve-rcu --release --locked
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --features $(EBPF),reprieve-rcu/tracing --no-deps --release --locked --quiet
	for patch in crates/rcu/mutants/*.patch; do git apply --check --recount "$$patch" || exit 1; done
	# A file above 450 lines hides a second one. A module's file stands beside its folder.
	git ls-files '*.rs' '*.c' '*.h' | xargs awk 'FNR == 451 { print FILENAME ": over 450 lines"; bad = 1 } END { exit bad }'
	! git ls-files 'crates/*/src/*mod.rs' | grep '/mod\.rs$$'
	shellcheck $(filter-out scripts/figures scripts/space.py,$(wildcard scripts/*)) guest/init .ci/run

setup:
	scripts/setup

# The recorded runs behind the documentation, most of them of real guests, and its figures made from them.
# Some of the records alone: scripts/record NAME...
record: setup build
	scripts/record
figures: build
	scripts/figures

# How often `reprieve explain` names the right cause, in real guests: two hours or so, on a machine that does nothing else. A part of
# it, to try: make confusion CONFUSION="--seed 3 --repeat 1 --causes quota,pause" CONFUSION_RECORD=/tmp/trial.json
CONFUSION_RECORD = records/explain/confusion.json
confusion: setup build
	cargo run -p reprieve --release --locked --example confusion -- --json $(CONFUSION_RECORD) $(CONFUSION)

# What the collector costs in a guest of one vCPU, for hosts whose kernel permits no eBPF: a quarter of an hour, on a machine
# that does nothing else.
COST_ROUNDS = 8
COST_RECORD = records/explain/cost-guest.json
cost-in-guest:
	scripts/setup --guests --ebpf
	cargo build --workspace --release --locked --features $(EBPF) --example observe_cost
	REPRIEVE_COST_PROGRAM=$(CURDIR)/target/release/examples/observe_cost REPRIEVE_COST_ROUNDS=$(COST_ROUNDS) \
	    REPRIEVE_COST_RECORD=$(abspath $(COST_RECORD)) cargo test --workspace --release --locked --features $(EBPF) \
	    --test ebpf -- --ignored --nocapture the_collector_s_cost_in_a_guest

# One space of 1,000 points on one machine, a process pool, Dask and Slurm, while workers, nodes and tasks are killed: the same table.
engines:
	scripts/engines

# The documents as a book, target/book/docs/index.html; builds mdbook first if it is missing.
book:
	scripts/book

# Licences, sources and, where their list can be had, known vulnerabilities of all dependencies; builds cargo-deny first.
audit:
	scripts/audit

clean:
	cargo clean
	rm -f report.html report.json delete-free.html delete-free.json
