rule all:
    input: "made"

rule made:
    output: "made"
    threads: 1
    resources: mem_mb=200, runtime=5, windlass_queue="films"
    shell: "echo the reason >&2; exit 3"
