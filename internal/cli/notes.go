package cli

// The notes of commands for help: the environment that counts, and exit codes.
// Those of the root hold for every command without its own.
const (
	serverEnvironment = `CELLMQ_NATS_URL          server, several separated by commas (default nats://127.0.0.1:4222)
CELLMQ_NATS_CREDENTIALS  file with the user's JWT and seed
CELLMQ_NATS_NKEY         file with the user's seed
CELLMQ_NATS_CA           file with the authorities of the server's certificate
CELLMQ_NATS_CERT         file with the certificate that the server gets to see
CELLMQ_NATS_KEY          file with the key of that certificate
CELLMQ_SUBJECT_PREFIX    first token of all subjects (default infer)`

	computeEnvironment = `CELLMQ_WEIGHTS           weight types, as int8 or g2p-en=bf16 (default as config.json says)
CELLMQ_ISA               instruction tier, as version lists them (default the fastest)`

	serveEnvironment = computeEnvironment + `
CELLMQ_SLOTS             requests that run at the same time (default 16)
CELLMQ_EXECUTORS         loops that run steps at the same time (default 1)
CELLMQ_THREADS           threads of each (default 1)`

	embeddedEnvironment = serverEnvironment + `
CELLMQ_MODEL_DIRS        with --embedded, as the following: directories with models, separated by commas
` + serveEnvironment

	replayEnvironment = serverEnvironment + `
CELLMQ_MODEL_DIRS        directories with models, separated by commas
` + computeEnvironment

	drawnEnvironment = serverEnvironment + `
NO_COLOR                 when set, no colours
TERM                     dumb: one view, as with --once
LC_ALL, LC_CTYPE, LANG   whether the terminal shows UTF-8`

	workerEnvironment = `CELLMQ_NATS_URL                 server to connect to (default none: an embedded one runs)
CELLMQ_EMBEDDED_WEBSOCKET_PORT  port for browsers, and so for the page /live/ (default none)
CELLMQ_MODEL_DIRS               directories with models, separated by commas
CELLMQ_WEIGHTS                  weight types, as int8 or g2p-en=bf16 (default as config.json says)
CELLMQ_PROFILE                  how long each model is measured when it is loaded; 0 is not at all
CELLMQ_OTLP_ENDPOINT            OpenTelemetry collector for traces (default none)
CELLMQ_...                      every other setting: docs/operations.md`

	noEnvironment = "no variable counts"

	usualExit = `0    it succeeded
1    it failed
2    the command line or the environment makes no sense
130  it was interrupted`

	requestExit = `0    every request has its output
1    a request failed, or no server answers
2    the command line or the environment makes no sense
130  it was interrupted; what ran is cancelled`

	cancelExit = `0    the request is cancelled, or had ended before
1    nobody knows the request (unknown), or no worker answers
2    the command line or the environment makes no sense
130  it was interrupted`

	replayExit = `0    what the replay gives is equal
1    it differs, or the letter cannot be replayed
2    the command line or the environment makes no sense
3    the model is another one than the letter's (--force replays it all the same)
130  it was interrupted`

	verifyExit = `0    the model passes
1    it does not, or cannot be loaded
2    the command line or the environment makes no sense
130  it was interrupted`

	deployExit = `0    the version serves
1    it was refused, or the time of --timeout is over
2    the command line or the environment makes no sense
130  the waiting was interrupted: the deployment goes on`

	workerExit = `0    it drained
1    it failed: a model does not load, the server refuses it, a port is taken
2    a flag or a setting makes no sense`

	healthExit = `0    the answer is 200
1    it is another one, or none came in time
2    the command line makes no sense`
)
