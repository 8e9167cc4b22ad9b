# Stands in for the official nats image: the same program and the same command line. cellmq is there for the health
# check.
FROM scratch
COPY bin/nats-server /nats-server
COPY bin/cellmq /cellmq
WORKDIR /data
EXPOSE 4222 8222
ENTRYPOINT ["/nats-server"]
CMD ["--config", "/etc/cellmq/nats.conf"]
