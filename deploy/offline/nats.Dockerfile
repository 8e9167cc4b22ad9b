# Stands in for the official nats image: the same program and the same command line. cellmq is there for the health
# check.
FROM scratch
COPY nats-server cellmq /
ENTRYPOINT ["/nats-server"]
