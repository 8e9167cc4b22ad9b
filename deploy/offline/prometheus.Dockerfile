# Stands in for the official image of Prometheus: the same program, from Debian's package, with the libraries that it
# loads. cellmq is there for the health check.
FROM scratch
COPY root/ /
COPY --chown=65534:65534 data/ /prometheus/
USER 65534:65534
ENTRYPOINT ["/usr/bin/prometheus"]
