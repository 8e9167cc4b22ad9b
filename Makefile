.DEFAULT_GOAL := help
BIN := cellmq

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary ./cellmq
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN) .

.PHONY: demo
demo: ## Run everything in one process with the bundled models
	go run . demo

.PHONY: test
test: ## Run the tests
	go test ./...

.PHONY: race
race: ## Run the tests where goroutines meet under the race detector
	bash .ci/run race

.PHONY: lint
lint: ## Check format, vet and lint
	bash .ci/run format vet lint

.PHONY: fuzz
fuzz: ## Run every fuzz target for 30 seconds
	FUZZ_TIME=30s bash .ci/run fuzz

.PHONY: bench
bench: ## Run the benchmarks
	go test -run '^$$' -bench . ./...

.PHONY: generate
generate: ## Regenerate generated files
	go generate ./...

.PHONY: stack
stack: ## Bring up the local stack with Docker Compose and stream a request
	docker compose up --build

.PHONY: ci
ci: ## Run everything CI runs
	bash .ci/run
