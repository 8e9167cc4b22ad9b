# deploy/Dockerfile without its build stage: the binary comes from this machine.
FROM scratch
COPY bin/cellmq /cellmq
USER 65532:65532
EXPOSE 9464
STOPSIGNAL SIGTERM
ENTRYPOINT ["/cellmq"]
CMD ["worker"]
