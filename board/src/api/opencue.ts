// The answers of an OpenCue gateway: crates/gateway-opencue/src/board. Cores are numbers of cores, memory is bytes,
// times are milliseconds of Unix time, and what is not known is null.

/** Frames by state, as OpenCue counts them. */
export interface CueCounts {
  waiting: number;
  running: number;
  depend: number;
  dead: number;
  succeeded: number;
  eaten: number;
  checkpoint: number;
}

export interface CueOverview {
  time_ms: number;
  hosts: { total: number; up: number; open: number };
  /** Of hosts that are up; held by frames; of hosts that are up and open. */
  cores: { total: number; used: number; idle: number };
  jobs: { open: number; paused: number };
  /** Of jobs that have not ended. Those of paused jobs do not count as waiting. */
  frames: { waiting: number; paused: number; running: number; depend: number; dead: number };
  scheduler: {
    is_healthy: boolean;
    booked_per_s: number | null;
    last_pass: {
      ended_ms: number;
      took_ms: number;
      hosts: number;
      layers: number;
      placed: number;
      booked: number;
    } | null;
    launched: number;
    launches_failed: number;
    refused: number;
  };
  faults: CueFault[];
}

/** A host or a layer that the scheduler leaves out for a while. */
export interface CueFault {
  kind: 'host' | 'layer';
  name: string;
  job: string | null;
  job_name: string | null;
  reason: string;
  left_ms: number;
}

export interface CueShow {
  name: string;
  /** Windlass books its frames, and not Cuebot. */
  scheduled: boolean;
  paused: boolean;
  jobs: number;
  waiting: number;
  running: number;
  /** Cores of all its subscriptions. */
  size: number;
  burst: number;
  cores: number;
  /** Its part of the sizes of all shows. */
  share: number | null;
  subscriptions: { alloc: string; size: number; burst: number; cores: number }[];
}

export interface CueJob {
  id: string;
  name: string;
  show: string;
  user: string;
  shot: string;
  group: string;
  state: string;
  priority: number;
  counts: CueCounts;
  frames: number;
  layers: number;
  cores: number;
  cores_min: number;
  cores_max: number | null;
  started_ms: number;
  stopped_ms: number | null;
}

export interface CueLayer {
  id: string;
  name: string;
  kind: string;
  tags: string[];
  services: string[];
  range: string;
  /** Above 0 a minimum, 0 a whole host, below 0 a whole host but as many. */
  cores_min: number;
  memory_bytes: number;
  gpus: number;
  threadable: boolean;
  counts: CueCounts;
  frames: number;
  cores: number;
  mean_ms: number | null;
}

export interface CueFrame {
  id: string;
  name: string;
  number: number;
  state: string;
  host: string | null;
  cores: number | null;
  reserved_bytes: number | null;
  used_bytes: number | null;
  peak_bytes: number | null;
  retries: number;
  exit_status: number | null;
  depends: number;
  started_ms: number | null;
  stopped_ms: number | null;
}

export interface CueHost {
  name: string;
  alloc: string;
  facility: string;
  state: 'open' | 'locked' | 'away';
  hardware: string;
  lock: string;
  cores: number;
  cores_idle: number;
  memory_bytes: number;
  /** Not held by frames. */
  memory_idle_bytes: number;
  /** Free as the host reports it. */
  memory_free_bytes: number | null;
  load: number | null;
  gpus: number;
  gpus_idle: number;
  frames: number;
  tags: string[];
  os: string | null;
  heard_ms: number | null;
  booted_ms: number | null;
  left_out_ms: number | null;
}

/** A frame on a host. */
export interface CueProc {
  id: string;
  frame: string | null;
  layer: string | null;
  job: string | null;
  job_name: string | null;
  show: string | null;
  cores: number;
  reserved_bytes: number;
  used_bytes: number | null;
  gpus: number;
  since_ms: number | null;
}

export type CueHostDetail = CueHost & { procs: CueProc[] };

export interface CueWhy {
  layers: { name: string; frames: string; reasons: string[] }[];
  /** Layers that are not among them. */
  left_out: number;
}
