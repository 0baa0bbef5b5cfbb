# What a developer needs by name; everything else is `cargo` and `cargo xtask` (CONTRIBUTING.md).

# Outside of the checkout, so that a fresh clone is built quickly and nothing is left in it.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tombolo/target

.PHONY: demo e2e soak test tools

# A clusterset of three clusters, live: edit a file below examples/shop and watch.
demo: tools
	cargo run --locked --quiet -- up examples/shop

# Everything that a change has to pass. Tests on real clusters are apart, as they need root and
# minutes; those with real etcd need Go, which builds it.
test: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo xtask arch
	cargo xtask generate --check
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	cargo test --workspace --locked --no-fail-fast -- --skip e2e_ \
	    $$(command -v go >/dev/null || echo --skip etcd_)
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --locked --no-deps --quiet

# The tests on real clusters: as root, with Go, in half an hour, and the first time as long to
# build Kubernetes.
e2e: tools
	cargo test --workspace --locked --test e2e -- --ignored
	TOMBOLO_E2E_OVER=etcd cargo test --workspace --locked --test e2e -- --ignored
	cargo test --workspace --locked --test e2e_registry -- --ignored
	cargo test --workspace --locked --test coredns -- --ignored --test-threads 1
	cargo test --workspace --locked --test nodes -- --ignored --test-threads 1

# Long loads, in parts: 24 million DNS queries take some minutes.
soak: tools
	cargo build --release --locked
	cargo xtask soak dns --binary "$(CARGO_TARGET_DIR)/release/tombolo"

# What cargo cannot fetch itself: installed where that is possible, named where it is not.
tools:
	@.ci/tools
