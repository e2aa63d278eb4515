# nvcoll with its engine and its virtual GPU, for Linux on x86-64: docker build -t nvcoll . && docker run --rm nvcoll info
#
#   docker run --rm -v "$PWD:/work" nvcoll plan llama3-8b --on hgx-h100
#   FROM nvcoll, USER root, RUN pip install torch         an image for dry runs and for the backend of torch.distributed
#
# Not built where this was written.
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python3 -m venv /venv && /venv/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim-bookworm
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir /wheels/*.whl && useradd --create-home --uid 1000 nvcoll
USER nvcoll
WORKDIR /work
ENTRYPOINT ["nvcoll"]
CMD ["--help"]
