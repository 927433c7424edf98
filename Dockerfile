# syntax=docker/dockerfile:1
# The page on any host, with or without a GPU:
#     docker build -t rotatek . && docker run --rm --gpus all -p 7860:7860 rotatek
# torch's wheel brings its own CUDA libraries, so the smallest CUDA base is enough: it makes the
# host's driver visible. Ubuntu 24.04 has Python 3.12.
FROM nvidia/cuda:13.0.2-base-ubuntu24.04

# Triton compiles its launchers on first use: it needs a C compiler and Python's headers.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates gcc libc6-dev python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

# Ubuntu's image has a user "ubuntu" with id 1000, the id that Spaces run as.
RUN userdel --remove ubuntu && useradd --uid 1000 --create-home user
USER user
WORKDIR /home/user/app

ENV PATH=/home/user/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HOME=/home/user/.cache/huggingface \
    TRITON_CACHE_DIR=/home/user/.cache/triton \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    GRADIO_ANALYTICS_ENABLED=False

# The packages change seldom and the code often: two layers, the large one first.
COPY --chown=user:user requirements.txt .
RUN python3 -m venv /home/user/venv \
    && pip install --no-cache-dir -r requirements.txt
COPY --chown=user:user . .

EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/', timeout=4)"]

# exec form: the process gets SIGTERM itself.
CMD ["python", "app.py"]
