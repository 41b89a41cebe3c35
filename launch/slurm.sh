#!/usr/bin/env bash
# Discovery on many machines under SLURM: sbatch launch/slurm.sh
#
# Each node runs one process, which uses all of its devices; a line at the start
# says how many were found. With more tasks per node, each uses an equal share.
# After SIGTERM the run saves and exits with 143. SLURM sends the signal some time
# before the limit (--signal) or when it needs the nodes (--requeue), and restarts
# the job, which continues from its last checkpoint. RUN must be on a file system
# that all nodes share. Submit it from an environment that has disco-rl.
#SBATCH --job-name=disco
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -u

CONFIG=${CONFIG:-disco103}
RUN=${RUN:-$HOME/runs/disco103}

# The signal is for the job steps: this script waits for their end.
trap '' TERM
srun --kill-on-bad-exit=1 \
  disco-rl meta-train \
  --config="$CONFIG" --workdir="$RUN" --distributed "$@"
status=$?

# 143: saved as requested. Others are errors, after which it is not requeued.
if [ "$status" = 143 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
