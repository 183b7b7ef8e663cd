# RQD's part of a frame on a Windlass worker: /bin/sh -c SCRIPT opencue-frame LOG_DIR LOG_FILE COMMAND
#
# It runs as the frame's user, so that user's rights decide what the paths of a job reach. It refuses with exit status
# 125 and a sentence on its standard error. Once the log is open, all output goes there: only a refusal has both.

log_dir=$1
log=$1/$2
command=$3

refuse() {
    echo "$1" >&2
    exit 125
}

# A task that was lost with its worker is started again when the worker is back. By then the frame waits again.
[ "${WINDLASS_ATTEMPT:-1}" = 1 ] || refuse "the frame was lost with its worker, and is launched again by the gateway"
[ "$(id -u)" != 0 ] || refuse "the frame would run as root: start the worker with --map-user"

if [ ! -d "$log_dir" ]; then
    # Others of the same shot make their directories beside this one.
    (umask 000 && mkdir -p -- "$log_dir") 2>/dev/null
fi
[ -d "$log_dir" ] || refuse "$(id -un) cannot make the directory of the log, $log_dir"
if [ -e "$log" ] || [ -L "$log" ]; then
    count=1
    while [ -e "$log.$count" ] && [ "$count" -lt 15 ]; do
        count=$((count + 1))
    done
    mv -f -- "$log" "$log.$count" 2>/dev/null
fi
# The directory is open to everybody: noclobber follows no link that another user put there.
(set -C && umask 000 && : >"$log") 2>/dev/null || refuse "$(id -un) cannot make the log $log"
exec >>"$log" 2>&1

[ ! -d /mcp ] || cd /mcp
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    CUE_GPU_CORES=$CUDA_VISIBLE_DEVICES
    export CUE_GPU_CORES
fi

rule='==========================================================='
now() { LC_ALL=C date '+%a %b %e %H:%M:%S %Y'; }
above() { printf '%-21s%s\n' "$1" "$2"; }
below() { printf '%-20s%s\n' "$1" "$2"; }

started=$(now)
echo "$rule"
printf 'RenderQ JobSpec      %s \n\n' "$started"
above command "$command"
above uid "$(id -u)"
above gid "$(id -g)"
above logDestination "$log"
above cwd "$(pwd)"
above renderHost "${jobhost:-}"
above jobId "${CUE_JOB_ID:-}"
above frameId "${CUE_FRAME_ID:-}"
# What names the Windlass server is nothing for a file that everybody reads.
env | grep -v '^WINDLASS_' | LC_ALL=C sort | while IFS= read -r variable; do
    above env "$variable"
done
echo "$rule"

# A kill is told to all processes of the frame. The command ends by it, and the log still gets its end.
signal=0
trap 'signal=15' TERM
/bin/sh -c "$command"
status=$?

printf '\n%s\nRenderQ Job Complete\n\n' "$rule"
below exitStatus "$status"
below exitSignal "$signal"
below startTime "$started"
below endTime "$(now)"
below renderhost "${jobhost:-}"
echo "$rule"
exit "$status"
