# The server in a container: `docker build -t hermes-trio .`
# It runs as a user of its own, keeps everything in /data, and needs no other writable folder but /tmp.
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
# Extras of the package; --build-arg EXTRAS=chat,postgres,mcp adds some.
ARG EXTRAS=chat,postgres
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY hermes_trio hermes_trio
RUN python3 -m venv /opt/hermes-trio \
 && /opt/hermes-trio/bin/pip install --no-cache-dir -c requirements.lock ".[$EXTRAS]"

FROM ${BASE}
# bubblewrap isolates the programs of tools, where the container may create user namespaces.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --home-dir /data --no-create-home hermes \
 && install --directory --owner=hermes --group=hermes --mode=0700 /data
COPY --from=build /opt/hermes-trio /opt/hermes-trio
ENV PATH=/opt/hermes-trio/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HERMES_TRIO_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8642
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8642/health/ready', timeout=2)"]
ENTRYPOINT ["hermes-trio"]
CMD ["serve", "--host", "0.0.0.0"]
