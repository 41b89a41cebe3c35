# An image for one machine or many, with the versions of requirements.lock:
#
#   docker build --tag disco-rl .
#   docker run --gpus all --volume "$PWD/runs:/runs" disco-rl \
#     meta-train --config=quickstart --workdir=/runs/quickstart
#
# It is for NVIDIA GPUs with driver 580 or later, and finds the other pods under
# Kubernetes. --build-arg JAX='jax[tpu,k8s]' builds it for TPUs, and
# --build-arg JAX=jax for CPUs.
# Pinned, as a tag can be moved: this is 3.11.14-slim-bookworm for all processors.
FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
ARG JAX="jax[cuda13,k8s]"
WORKDIR /disco_rl
COPY . .
RUN pip install --no-cache-dir --constraint requirements.lock \
  --editable '.[gymnax,hub,video]' "$JAX"
WORKDIR /
ENTRYPOINT ["disco-rl"]
