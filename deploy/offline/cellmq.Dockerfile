# deploy/Dockerfile without its build stage, and without what the compose file says anyway: the binary comes from this
# machine.
FROM scratch
COPY cellmq /cellmq
# An empty directory: a volume over it takes its owner, and without it root's.
COPY --chown=65532:65532 data /data
USER 65532:65532
ENTRYPOINT ["/cellmq"]
