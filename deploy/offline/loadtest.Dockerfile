# The load test: the binary comes from this machine.
FROM scratch AS loadtest
COPY loadtest /loadtest
USER 65532:65532
ENTRYPOINT ["/loadtest"]
