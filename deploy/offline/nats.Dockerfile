# Stands in for the official nats image: the same program and the same command line. cellmq is there for the health
# check.
FROM scratch
COPY nats-server cellmq /
WORKDIR /data
EXPOSE 4222 8080 8222
ENTRYPOINT ["/nats-server"]
CMD ["--config", "/etc/cellmq/nats.conf"]
