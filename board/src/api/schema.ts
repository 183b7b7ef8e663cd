// Written by `npm run types` from docs/src/openapi.json. Do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description A command of an environment. */
        Action: {
            cancel?: components["schemas"]["Cancel"] | null;
            /** @description Program and arguments, with references; no shell is involved. */
            command: string[];
            /**
             * Format: int64
             * @description Milliseconds that it may run.
             */
            timeout_ms?: number | null;
        };
        /** @description Number of active jobs by what they do. */
        ActiveJobs: {
            /**
             * Format: int64
             * @description A user holds them.
             */
            held: number;
            /**
             * Format: int64
             * @description At least one task is booked or runs.
             */
            running: number;
            /**
             * Format: int64
             * @description No task is booked or runs.
             */
            waiting: number;
        };
        /** @description A question which blobs must be uploaded. */
        AskBlobs: {
            /** @description Up to 10,000, each as `HASH/BYTES`. */
            blobs: string[];
        };
        /** @description One attempt to run a task. What is not known is absent. */
        Attempt: {
            /**
             * Format: int32
             * @description The attempt's number, from 1; 0 if the task was never booked.
             */
            attempt: number;
            /**
             * Format: int64
             * @description When it was booked.
             */
            booked_ms?: number | null;
            /**
             * Format: int64
             * @description Cpu time of all of its processes in milliseconds.
             */
            cpu_ms?: number | null;
            end?: components["schemas"]["End"] | null;
            /**
             * Format: int64
             * @description Bytes written to standard error.
             */
            err_bytes?: number;
            /**
             * Format: int32
             * @description The exit code, or the code that a shell would report instead, such as 137 for SIGKILL.
             */
            exit_code?: number | null;
            /**
             * Format: int64
             * @description When its end was seen.
             */
            finished_ms?: number | null;
            /** @description True if the result was refused, because the attempt was not the booked one any more. */
            late?: boolean;
            /** @description Why it could not be started, or the task's own message about its failure. */
            message?: string | null;
            /**
             * Format: int64
             * @description Bytes written to standard output.
             */
            out_bytes?: number;
            /**
             * Format: int64
             * @description Most bytes of memory held at one time.
             */
            peak_memory?: number | null;
            /**
             * Format: int64
             * @description When its process started.
             */
            started_ms?: number | null;
            /** @description Name of the worker, unique on the farm. */
            worker?: string | null;
        };
        /** @description Attempts in a minute. */
        AttemptRates: {
            /**
             * Format: double
             * @description That failed, those that are tried again too.
             */
            failed: number;
            /**
             * Format: double
             * @description Attempts that started in it.
             */
            started: number;
            /**
             * Format: double
             * @description Attempts that succeeded in it.
             */
            succeeded: number;
        };
        /** @description A worker that was scored for a task. */
        BoardCandidate: {
            /**
             * Format: int64
             * @description Number of the worker, unique on the farm.
             */
            id: number;
            /**
             * Format: double
             * @description The worker's load with the task.
             */
            load: number;
            /** @description Name of the worker, unique on the farm. */
            name: string;
            /** @description The points of each rule. */
            rules: components["schemas"]["RulePoints"][];
            /**
             * Format: double
             * @description The worker's points; may be negative.
             */
            score: number;
            /** @description True for the worker that got the task. */
            won: boolean;
        };
        /** @description A code that signs in once. */
        BoardCode: {
            /**
             * @description The address of the board, `http://HOST:PORT` or `https://HOST:PORT`. Absent for a caller over TCP, who knows
             *     where the server is reached.
             */
            address?: string | null;
            /**
             * @description The code to put behind `/#code=` of the board's address. It can be used once, and signs in with the caller's
             *     rights.
             */
            code: string;
            /**
             * Format: int64
             * @description Milliseconds until it expires.
             */
            expires_in_ms: number;
        };
        /** @description A placement decision. The candidates are workers. */
        BoardDecision: {
            /**
             * Format: int64
             * @description When it was made.
             */
            at: number;
            /** @description The winner and the next best, best first. */
            candidates: components["schemas"]["BoardCandidate"][];
            /**
             * Format: int64
             * @description Id of the task's job.
             */
            job_id: number;
            /** @description Name of the job, for people. */
            job_name?: string | null;
            kind?: components["schemas"]["Kind"] | null;
            /** @description The name of the task's step. */
            name?: string | null;
            /** @description Name of the scoring policy. */
            policy: string;
            /** @description Name of the job's queue. */
            queue?: string | null;
            /** @description The task that was placed. */
            task: string;
            /** @description The user who submitted the job. */
            user?: string | null;
            /** @description Name of the worker that won. */
            winner?: string | null;
            /**
             * Format: int64
             * @description The id of the worker that won.
             */
            worker_id?: number | null;
        };
        /** @description Who the caller is, for the board. */
        BoardMe: {
            /** @description Name of the user who is signed in. */
            name: string;
            /** @description The rights of the user. */
            role: components["schemas"]["Role"];
            /** @description How the caller is known. */
            signed_in_by: components["schemas"]["SignedInBy"];
            /**
             * Format: int64
             * @description The server's clock, in milliseconds since the Unix epoch.
             */
            time_ms: number;
            /** @description Release of the server, such as `0.1.0`. */
            version: string;
        };
        /** @description The credentials of a sign-in. Exactly one of the two fields is given. */
        BoardSignIn: {
            /** @description A code of `POST /api/v1/board/codes`, which is good for one sign-in within a minute. */
            code?: string | null;
            /** @description A token, as `windlass token create` prints it. */
            token?: string | null;
        };
        /** @description A worker as boards show it. */
        BoardWorker: {
            /** @description The values of its tag `arch`. */
            architectures: string[];
            /** @description Tasks that run there, prefetched tasks, and allocations of outside clients. */
            assigned_jobs: number;
            /**
             * Format: double
             * @description Percent of its cpus in use; null is unknown.
             */
            cpu_usage_pct?: number | null;
            /**
             * Format: double
             * @description Cpus that it declares.
             */
            cpus: number;
            /** @description True if an operator drained it. */
            draining: boolean;
            /** @description True if it has the tag `fetch`. */
            fetch: boolean;
            /**
             * Format: int64
             * @description When it was last heard from; null for a worker without heartbeats.
             */
            heard_at?: number | null;
            /**
             * Format: int64
             * @description Number of the worker, unique on the farm.
             */
            id: number;
            /** @description Name of the worker, unique on the farm. */
            name: string;
            /** @description Why it is drained, as the operator noted; null without a note. */
            note?: string | null;
            /** @description The queues that hold most of its cpus, the most first, at most four. */
            queues?: components["schemas"]["QueueCpus"][];
            /**
             * Format: int64
             * @description MiB of available memory; null is unknown.
             */
            ram_free_mb?: number | null;
            /**
             * Format: int64
             * @description MiB of memory that it declares; null for a worker that declares none.
             */
            ram_total_mb?: number | null;
            /** @description Whether it gets new work. */
            state: components["schemas"]["WorkerState"];
        };
        /** @description The envelope of every answer of the board. */
        Board_PendingJobs: {
            /** @description Always false: errors have another body. */
            error: boolean;
            message: components["schemas"]["PendingJobs"];
        };
        /** @description The envelope of every answer of the board. */
        Board_ScoringSummary: {
            /** @description Always false: errors have another body. */
            error: boolean;
            message: components["schemas"]["ScoringSummary"];
        };
        /** @description The envelope of every answer of the board. */
        Board_Vec_BoardDecision: {
            /** @description Always false: errors have another body. */
            error: boolean;
            message: components["schemas"]["BoardDecision"][];
        };
        /** @description The envelope of every answer of the board. */
        Board_Vec_BoardWorker: {
            /** @description Always false: errors have another body. */
            error: boolean;
            message: components["schemas"]["BoardWorker"][];
        };
        /** @description The envelope of every answer of the board. */
        Board_Vec_RuleEntry: {
            /** @description Always false: errors have another body. */
            error: boolean;
            message: components["schemas"]["RuleEntry"][];
        };
        /**
         * @description How a step depends on another.
         * @enum {string}
         */
        By: "step" | "task";
        /**
         * @description What the holder of a token may do with the remote cache, where that is not what the role says.
         * @enum {string}
         */
        CacheRight: "read" | "write";
        /** @description How a process is ended early. */
        Cancel: "terminate" | {
            /**
             * Format: int64
             * @description Notified by a signal and a file, and killed after this many milliseconds.
             */
            notify_then_terminate: number;
        };
        /** @description A job of which attempts failed for a cause. */
        CauseJob: {
            /**
             * Format: int64
             * @description Id of the job.
             */
            job: number;
            /**
             * Format: int64
             * @description Number of its attempts with this cause.
             */
            tasks: number;
        };
        /** @enum {string} */
        CauseWord: "directory" | "program" | "user" | "not_started" | "exit_code" | "signal" | "out_of_memory" | "time_limit" | "lost" | "outputs_lost" | "canceled" | "dependency" | "other";
        /** @description A change after which the task runs, or is the next to run. Each was tried on a copy of the engine. */
        Change: {
            by?: components["schemas"]["ChangeBy"] | null;
            /** @description Changes that make it run; all of them are needed. */
            steps: string[];
            /** @description The worker that would run it; absent if the change is not about one worker. */
            worker?: string;
        };
        /**
         * @description Who can make a change.
         * @enum {string}
         */
        ChangeBy: "submitter" | "administrator";
        /** @description Tasks of a job to be cancelled or retried. */
        ChangeTasks: {
            /** @description Their indexes in the job, from 0: `6`, `3-9` or `1,4-6`. */
            tasks: string;
        };
        /**
         * @description The numbers that one process may get, as in the extension `TASK_CHUNKING` of Open Job Description. With either of
         *     these, chunks of a fixed size divide their numbers evenly: 12 numbers in chunks of 5 are 3 chunks of 4.
         * @enum {string}
         */
        ChunkRange: "contiguous" | "noncontiguous";
        /** @description How many tasks one process runs. Without a number it is learned from how long chunks take. */
        ChunksRequest: {
            /**
             * Format: int32
             * @description The step's tasks are divided into blocks of this size, and a chunk never reaches from one block into the next;
             *     by default all tasks are one block.
             */
            block?: number | null;
            /**
             * @description The parameter of a space of which one process gets several values. It must be the one that varies fastest, of
             *     whole numbers.
             */
            param?: string | null;
            range?: components["schemas"]["ChunkRange"] | null;
            /**
             * Format: int64
             * @description Milliseconds that a chunk should run; by default long enough for its start not to matter.
             */
            target_ms?: number | null;
            /**
             * Format: int32
             * @description The number of tasks of a chunk. With `target_ms` it is only the size of the first chunks, until their length is
             *     known.
             */
            tasks?: number | null;
        };
        /** @description How many workers of one class are wanted. */
        ClassScaling: {
            /**
             * Format: int32
             * @description Of these, workers that run something.
             */
            busy: number;
            /** @description The amounts that each of its workers has at least. */
            capacity: components["schemas"]["Resources"];
            /** @description Whether more workers than it has may be wanted. */
            grows: boolean;
            /**
             * Format: int32
             * @description Workers that it has. Drained and expired ones do not count.
             */
            here: number;
            /**
             * Format: int32
             * @description Workers that are wanted at most.
             */
            max: number;
            /** @description Name of the class: the value of its workers' tag `class`, or else their size. */
            name: string;
            /** @description Why that many workers are wanted, as a sentence for people. */
            reason: string;
            /**
             * Format: int32
             * @description Of these, workers that run nothing and are more than are wanted.
             */
            spare: number;
            /**
             * @description Names of spare workers, at most 100: those that take no work, then those that came last. Drain one before it is
             *     stopped.
             */
            spare_workers?: string[];
            /**
             * Format: int64
             * @description Waiting tasks that are counted for the class.
             */
            tasks: number;
            /**
             * Format: int64
             * @description Of the waiting tasks, how many at a time start all of them within the target.
             */
            tasks_at_a_time: number;
            /**
             * Format: int64
             * @description Of these, tasks of unknown length.
             */
            unknown_tasks: number;
            /**
             * Format: int32
             * @description Of these, idle workers that take no work now: silent, in quarantine, under pressure, or short of space. Where more
             *     workers are wanted, these are wanted besides.
             */
            unusable?: number;
            /**
             * Format: int32
             * @description Workers that the class should have, those that run something among them.
             */
            wanted: number;
            /**
             * Format: int64
             * @description Predicted milliseconds that the other tasks take, one after the other.
             */
            work_ms: number;
        };
        /** @description A turn that waits or runs. (`Turn` is the place of a step in its queue.) */
        ClientTurn: {
            /** @description The command, if the client told it and the reader may see it. */
            command?: string | null;
            /**
             * Format: double
             * @description Cpus that it asks for.
             */
            cpus: number;
            /**
             * Format: int64
             * @description Bytes of memory that its command holds, as its client said last; absent where it has not said so.
             */
            held_memory?: number | null;
            /** @description The machine on which the client runs. */
            machine: string;
            /**
             * Format: int64
             * @description Bytes of memory that are booked for it, or will be; absent where none are, and while it waits and nothing is known
             *     of its shape.
             */
            memory?: number | null;
            /** @description The queue in which it waits, or that is charged for it. */
            queue: string;
            /**
             * Format: int64
             * @description Since when it waits, or runs.
             */
            since_ms: number;
            /** @description Whether it waits or runs. */
            state: components["schemas"]["TurnState"];
            /**
             * Format: int64
             * @description Its number, which no other turn since the server's start has.
             */
            turn: number;
            /** @description The user who asked for it. */
            user: string;
            /** @description Why it waits, as a sentence for people. Only of the first ones of each queue. */
            why?: string | null;
            /** @description The worker that holds the room. */
            worker?: string | null;
            /** @description The root of the client's repository, if it named one. */
            worktree?: string | null;
        };
        /** @description A column of the histogram. */
        Column: {
            /** @description Winners with points in between. */
            count: number;
            /**
             * Format: double
             * @description The most points, exclusive but in the last column.
             */
            hi: number;
            /**
             * Format: double
             * @description The least points, inclusive.
             */
            lo: number;
        };
        /** @description How the values of parameters combine: one of these fields. */
        Combination: {
            /** @description The first with the first, the second with the second; all have equally many. */
            association?: components["schemas"]["Combination"][];
            /** @description The values of one parameter. */
            param?: string;
            /** @description Each with each, the last varying fastest. */
            product?: components["schemas"]["Combination"][];
        };
        /** @description The number of tasks in each state. */
        Counts: {
            /**
             * Format: int32
             * @description Cancelled tasks: killed, or stopped before they started.
             */
            canceled: number;
            /**
             * Format: int32
             * @description Tasks that failed, with their retries spent.
             */
            failed: number;
            /**
             * Format: int32
             * @description Tasks that could start.
             */
            ready: number;
            /**
             * Format: int32
             * @description Booked or running tasks.
             */
            running: number;
            /**
             * Format: int32
             * @description Tasks that never started because a dependency failed.
             */
            skipped: number;
            /**
             * Format: int32
             * @description Tasks that ended with success.
             */
            succeeded: number;
            /**
             * Format: int32
             * @description Tasks in all states together.
             */
            total: number;
            /**
             * Format: int32
             * @description Tasks that wait for another task, step or job.
             */
            waiting: number;
        };
        /** @description A token to be created. */
        CreateToken: {
            cache?: components["schemas"]["CacheRight"] | null;
            /**
             * Format: int64
             * @description Milliseconds after which it expires; absent is never.
             */
            expires_in_ms?: number | null;
            /**
             * @description The users whose jobs its holder submits: names, in which `*` stands for any characters. Required for the role
             *     `submitter`, and refused for others.
             */
            for_users?: string[];
            /** @description A note of its creator for people. */
            note?: string;
            /** @description The queue of these jobs. Required for the role `submitter`, and refused for others. */
            queue?: string | null;
            /** @description The role of its holder. */
            role: components["schemas"]["Role"];
            /** @description The systems whose outside clients that worker may serve: `nix`, `sccache`. For the role `worker` alone. */
            serves?: string[];
            /** @description The user that its holder is known as; required for the role `user`, otherwise the caller by default. */
            user?: string | null;
            /** @description The worker that its holder may connect as; required for the role `worker`. */
            worker?: string | null;
        };
        /** @description A token that was just created. */
        CreatedToken: {
            /** @description The secret that goes after `Bearer`. The server does not keep it, and returns it only here. */
            bearer: string;
            /** @description The token without its secret. */
            token: components["schemas"]["Token"];
        };
        /** @description A dependency of one step on another. */
        Depends: {
            /** @description Whether each task depends on the whole step, or on one task of it. */
            by?: components["schemas"]["By"];
            /** @description The name of the step that must succeed first. */
            on: string;
        };
        /** @description Space of the file system that holds a directory. */
        DiskSpace: {
            /**
             * Format: int64
             * @description Bytes that are free.
             */
            free_bytes: number;
            /**
             * Format: int64
             * @description Bytes of the file system.
             */
            total_bytes: number;
        };
        /** @description How a worker is drained. */
        DrainRequest: {
            /** @description Why, for people: at most 1000 bytes. It is shown with the worker and by why until the worker is resumed. */
            note?: string | null;
        };
        /** @description What a submission would do now. Nothing of it was done, and nothing is kept for it. */
        DryRun: {
            /**
             * Format: int64
             * @description The job that was submitted before with the same key: nothing would be submitted.
             */
            existing?: number | null;
            /** @description The name that the job would have. */
            name: string;
            /**
             * Format: int32
             * @description Its priority inside the queue.
             */
            priority: number;
            /** @description The queue that it would be in. */
            queue: string;
            /** @description True if the farm has no queue of that name, and it is not the one of the user's name, `vip` or `idle`. */
            queue_created?: boolean;
            /** @description The steps in their order; none where nothing would be submitted. */
            steps: components["schemas"]["DryRunStep"][];
            /** @description Steps that no worker that the farm has now could run. */
            unplaceable?: components["schemas"]["Unplaceable"][];
            /** @description The user whose job it would be. */
            user: string;
        };
        /** @description What would become of a step. */
        DryRunStep: {
            /** @description Where tasks of it would start at once. */
            starts?: components["schemas"]["StartsOn"][];
            /** @description The step with what its tasks ask for, after defaults. */
            step: components["schemas"]["Step"];
            /**
             * Format: int32
             * @description Tasks that would wait.
             */
            waiting: number;
            why?: components["schemas"]["Why"] | null;
        };
        /** @description A histogram of how long attempts ran. */
        Durations: {
            /** @description The longest time of each column but the last, in milliseconds. */
            bounds_ms: number[];
            /** @description Attempts of each column; the last has those that ran longer than all bounds. */
            tasks: number[];
        };
        /** @description A file that is part of the job. */
        EmbeddedFile: {
            /** @description The file's text, with references. */
            data: string;
            /** @description The name on disk; `name` by default. */
            filename?: string | null;
            /** @description The name in references. */
            name: string;
            /** @description The file is executable. */
            runnable?: boolean;
        };
        /**
         * @description How an attempt ended.
         * @enum {string}
         */
        End: "exited" | "signal" | "time_limit" | "oom" | "canceled" | "recalled" | "not_started" | "lost" | "outputs_lost";
        /** @description Number of jobs by the state in which they ended. */
        EndedJobs: {
            /**
             * Format: int64
             * @description A person cancelled them.
             */
            canceled: number;
            /**
             * Format: int64
             * @description A task failed for good, or a job that this one came after did.
             */
            failed: number;
            /**
             * Format: int64
             * @description Jobs of which every task succeeded.
             */
            succeeded: number;
        };
        /** @description An environment, entered before tasks and left after them. */
        Environment: {
            /** @description Files that are written when the environment is entered, as `{{Env.File.NAME}}`. */
            files?: components["schemas"]["EmbeddedFile"][];
            /** @description The environment's name, for people. */
            name: string;
            on_enter?: components["schemas"]["Action"] | null;
            on_exit?: components["schemas"]["Action"] | null;
            /** @description Variables for tasks and for later environments, with references. */
            variables?: {
                [key: string]: string;
            };
        };
        /** @description The body of every answer that is not a success. */
        ErrorBody: {
            /** @description The error, for programs and for people. */
            error: components["schemas"]["ErrorDetail"];
        };
        /**
         * @description Kinds of errors that programs tell apart.
         * @enum {string}
         */
        ErrorCode: "bad_request" | "unauthorized" | "forbidden" | "not_found" | "method_not_allowed" | "conflict" | "too_large" | "cannot_be_placed" | "unavailable" | "worker_away" | "internal";
        /** @description An error, for programs and for people. */
        ErrorDetail: {
            /** @description The kind of error, for programs. */
            code: components["schemas"]["ErrorCode"];
            /** @description What to do next, if that is known. */
            hint?: string | null;
            /** @description What failed and why. */
            message: string;
        };
        /** @description An attempt that took much. */
        ExpensiveTask: {
            /**
             * Format: double
             * @description Cpus that it held.
             */
            cpus: number;
            /**
             * Format: int64
             * @description Id of the task's job.
             */
            job: number;
            /**
             * Format: int64
             * @description Milliseconds that it ran.
             */
            ms: number;
            /**
             * Format: int64
             * @description Most bytes of memory that it held at one time.
             */
            peak_bytes?: number | null;
            /** @description Name of its job's queue. */
            queue: string;
            /** @description The name of its step. */
            step: string;
            /** @description The task's id, `JOB.INDEX`. */
            task: string;
            /** @description The worker's name; empty if that is not known any more. */
            worker: string;
        };
        /**
         * @description What a failed task does to the rest of its job.
         * @enum {string}
         */
        FailFast: "finish" | "kill";
        /** @description A failed task, with its failure. What is not known is absent. */
        FailedTask: components["schemas"]["Failure"] & {
            /**
             * Format: int32
             * @description The number of the attempt that failed last, from 1.
             */
            attempt: number;
            /**
             * Format: int64
             * @description When the end of that attempt was seen.
             */
            finished_ms?: number | null;
            /** @description The name of its step. */
            step: string;
            /** @description The task's id, `JOB.INDEX`. */
            task: string;
            /** @description Its value, if the step has values. */
            value?: string | null;
            /** @description Name of the worker of that attempt. */
            worker?: string | null;
        };
        /** @description How a task failed in its last attempt. */
        Failure: {
            /** @description What to do about it; absent where only the output of the task can tell. */
            advice?: string | null;
            /** @description The cause in one word, for programs. */
            cause: components["schemas"]["CauseWord"];
            /** @description What the task itself said of its failure. */
            message?: string | null;
            /** @description The last lines of its standard error; absent in lists, where it wrote none, and while its worker is away. */
            stderr?: string[];
            /** @description The cause as a sentence for people, such as `exit code 4`. */
            summary: string;
        };
        /** @description Attempts that failed for one cause. */
        FailureCause: {
            /**
             * @description `exit CODE`, `signal NUMBER`, `time_limit`, `oom`, `not_started`, `lost`, or `outputs_lost`. Newer servers may know
             *     more words.
             */
            cause: string;
            /** @description The jobs with most of them, the most first, at most 5. */
            jobs?: components["schemas"]["CauseJob"][];
            /**
             * Format: int64
             * @description Number of attempts with this cause.
             */
            tasks: number;
        };
        /** @description Failed tasks of one job with the same cause. */
        FailureGroup: {
            /** @description The cause in one word, for programs. */
            cause: components["schemas"]["CauseWord"];
            /** @description The first of these tasks, with the last lines of its standard error. */
            first: components["schemas"]["FailedTask"];
            /** @description The cause as a sentence for people, which all of these tasks have. */
            summary: string;
            /** @description Ids of the first of them. */
            task_examples: string[];
            /**
             * Format: int32
             * @description Number of these tasks.
             */
            tasks: number;
            /** @description Names of some of these workers. */
            worker_examples?: string[];
            /** @description Number of workers on which they failed. */
            workers: number;
        };
        /** @description How the tasks of a job failed. The tasks of all groups, `other_tasks` and `not_looked_at` are `failed` together. */
        Failures: {
            /**
             * Format: int32
             * @description Number of its failed tasks.
             */
            failed: number;
            /** @description Its failed tasks by cause, the most frequent cause first. */
            groups: components["schemas"]["FailureGroup"][];
            /**
             * Format: int64
             * @description Id of the job, unique on the farm.
             */
            job: number;
            /**
             * Format: int32
             * @description Failed tasks that were not looked at, because there are more than one request looks at.
             */
            not_looked_at?: number;
            /**
             * Format: int32
             * @description Failed tasks with causes that are not among the groups.
             */
            other_tasks?: number;
            /** @description Why no further task of the job starts; absent if the job was not stopped. */
            stopped?: string | null;
        };
        /** @description Cpus of the farm. */
        FarmCpus: {
            /**
             * Format: double
             * @description Booked on all workers.
             */
            booked: number;
            /** @description The resources booked by each queue, the largest first, at most 50. */
            by_queue: components["schemas"]["QueueCpus"][];
            /**
             * Format: double
             * @description Free on workers that take no work and are not lost: draining, suspect, pressed, low on space or in quarantine.
             */
            out_of_service?: number;
            /**
             * Format: double
             * @description Of the workers that are up.
             */
            total: number;
            /**
             * Format: double
             * @description Free on workers that take work.
             */
            usable?: number;
        };
        /** @description Since when a server owns the farm. */
        FarmOwnership: {
            /**
             * Format: int64
             * @description Rises with each owner.
             */
            epoch: number;
            /**
             * Format: int64
             * @description Time since the owner took it.
             */
            since_ms?: number | null;
        };
        /** @description Numbers of the farm over time, oldest first, one for each step; null is unknown, and a time without a server. */
        FarmSeries: {
            /** @description Cpus that are booked. */
            busy_cpus: (number | null)[];
            /** @description Percent of the time in which some process waited for a cpu, mean over the workers that say it. */
            cpu_pressure: (number | null)[];
            /** @description Tasks that were placed in the step. */
            decisions: (number | null)[];
            /**
             * Format: int64
             * @description When the last step ends.
             */
            end_ms: number;
            /** @description Attempts that failed in the step, those that are tried again too. */
            failed: (number | null)[];
            /** @description The same for input and output. */
            io_pressure: (number | null)[];
            /** @description The same for memory. */
            memory_pressure: (number | null)[];
            /** @description The queues that held most in this time, at most 20, the most first. */
            queues: components["schemas"]["QueueSeries"][];
            /** @description Tasks that hold a part of a worker. */
            running: (number | null)[];
            /** @description Attempts that started in the step. */
            started: (number | null)[];
            /**
             * Format: int64
             * @description Milliseconds of a step.
             */
            step_ms: number;
            /** @description Attempts that succeeded in the step. */
            succeeded: (number | null)[];
            /** @description Cpus of the workers that are up. */
            total_cpus: (number | null)[];
            /** @description Milliseconds from ready to placed: half of the tasks that were placed in the step waited at most this. */
            wait_p50_ms: (number | null)[];
            /** @description Nineteen of twenty waited at most this. */
            wait_p95_ms: (number | null)[];
            /** @description Tasks that could start. */
            waiting: (number | null)[];
        };
        /** @description A server that shares a database with others. */
        FarmServer: {
            /** @description Where clients and workers reach it. */
            addresses: string[];
            /** @description It gives up the farm, and does not take it. */
            draining: boolean;
            /**
             * Format: int64
             * @description Its number; each start has one of its own.
             */
            id: number;
            /** @description It is the one that answers. */
            is_this: boolean;
            /** @description Its name, for people. */
            name: string;
            owns?: components["schemas"]["FarmOwnership"] | null;
            /** @description Its release of Windlass. */
            release: string;
            /**
             * Format: int64
             * @description Time since its last heartbeat in the database.
             */
            silent_ms: number;
            /**
             * Format: int64
             * @description Time since its start.
             */
            up_ms: number;
        };
        /**
         * @description A letter and a number of tasks. `b`: waits for other tasks; `w`: waits for its turn; `p`: placed, not started; `r`:
         *     runs; `s`: succeeded; `f`: failed; `c`: cancelled; `l`: will never start, or something else.
         */
        GridRun: Record<string, never>[];
        /**
         * @description What keeps a worker from giving a build more processes.
         * @enum {string}
         */
        HeldBack: "memory" | "pressure";
        /** @description A turn that a client has had before. */
        HeldTurn: {
            /**
             * Format: int64
             * @description The turn's number until then.
             */
            turn: number;
        };
        /** @description Hints: what helps to choose a worker or to size a task. */
        Hints: {
            /**
             * @description The cache keys that its tasks read, each with its bytes; null is unknown.
             * @default {}
             */
            caches?: {
                [key: string]: number | null;
            };
            /**
             * @description The requested cpus are only the first guess; later tasks are sized by the task profile.
             * @default false
             */
            cpus_auto?: boolean;
            /**
             * Format: double
             * @description Cores that a task takes at most, of what is idle on its worker.
             * @default null
             */
            cpus_max?: number | null;
            /**
             * Format: int64
             * @description Target queueing delay: milliseconds that a ready task should wait at most.
             * @default null
             */
            deadline_ms?: number | null;
            /**
             * @description The tasks need a worker with the tag `fetch`.
             * @default false
             */
            fetches?: boolean;
            /** @default null */
            jobserver?: components["schemas"]["Jobserver"] | null;
            /** @default null */
            kind?: components["schemas"]["Kind"] | null;
            /**
             * @description The tasks mostly wait for the network.
             * @default false
             */
            network_bound?: boolean;
            /**
             * @description The tasks are short, and best run where their inputs are.
             * @default false
             */
            prefer_local?: boolean;
            /**
             * @description Workers that its tasks wait for a while before they run elsewhere.
             * @default []
             */
            prefers?: string[];
            /**
             * @description The command without what differs from task to task. Steps of one queue, name and shape have one task profile.
             * @default
             */
            shape?: string;
        };
        /** @description The outcomes of the attempts that ended in the last hours. The server remembers the last 20000. */
        History: {
            /**
             * Format: int64
             * @description Attempts that were killed on request.
             */
            canceled: number;
            /** @description How long these attempts ran, as a histogram. */
            durations: components["schemas"]["Durations"];
            /** @description The attempts with the most cpu time, at most 50; only of jobs that the caller may read. */
            expensive: components["schemas"]["ExpensiveTask"][];
            /**
             * Format: int64
             * @description Failed, or lost with their worker.
             */
            failed: number;
            /** @description Failures by cause, the most frequent first, at most 20. */
            failures: components["schemas"]["FailureCause"][];
            /**
             * Format: int64
             * @description Since when: as long ago as was asked for, or since the oldest attempt that is remembered.
             */
            since_ms: number;
            /**
             * Format: int64
             * @description Attempts of these that succeeded.
             */
            succeeded: number;
            /**
             * Format: int64
             * @description Attempts that ended; one that was tried again counts once for each time.
             */
            tasks: number;
            /** @description Workers by failures, the most first, at most 20. */
            workers: components["schemas"]["WorkerRecord"][];
        };
        /** @description A reason for which workers are ineligible. */
        IneligibleWorkers: {
            /** @description Names of some of them. */
            examples?: string[];
            /** @description The reason for people. */
            message: string;
            /** @description The reason in one word, for programs. */
            reason: components["schemas"]["WhyWord"];
            /** @description Number of these workers. */
            workers: number;
        };
        /** @description What scoring rules see of the farm. */
        InstanceFigures: {
            /**
             * Format: int32
             * @description Tasks that are booked or run.
             */
            active_tasks: number;
            /**
             * Format: double
             * @description Mean speed of a core of the workers; 1000 is the reference core. Null is unknown.
             */
            core_score?: number | null;
            /**
             * Format: int32
             * @description Workers that take work and run nothing.
             */
            idle_workers: number;
            /** @description Means of what was measured of tasks, by name. */
            means: {
                [key: string]: components["schemas"]["WindowMeans"];
            };
            /**
             * Format: int32
             * @description Tasks that could start.
             */
            pending_tasks: number;
            /**
             * Format: int32
             * @description Workers that take work.
             */
            total_workers: number;
        };
        /** @description A job with its progress. */
        Job: {
            /** @description Jobs that must succeed first. */
            after?: number[];
            /** @description Jobs that must end first, whatever way. */
            after_any?: number[];
            /** @description Jobs that must fail or be cancelled first. */
            after_not_ok?: number[];
            /**
             * Format: int64
             * @description The job after whose tasks its own come, task by task.
             */
            after_tasks?: number | null;
            /** @description The number of tasks in each state. */
            counts: components["schemas"]["Counts"];
            /**
             * Format: int64
             * @description When it was accepted.
             */
            created_ms: number;
            /**
             * Format: int64
             * @description When it ended, in milliseconds since the Unix epoch.
             */
            ended_ms?: number | null;
            /**
             * Format: int64
             * @description When it is expected to end if it goes on with as many tasks at a time as run now: an estimate from the mean run
             *     times of its steps, or from those of earlier tasks that are alike. Absent where nothing of it runs, and where
             *     nothing is known of some of what is left.
             */
            expected_end_ms?: number | null;
            /**
             * Format: int64
             * @description Id of the job, unique on the farm.
             */
            id: number;
            /**
             * Format: int32
             * @description How many of its tasks may run at a time; absent is any number.
             */
            max_running?: number | null;
            /** @description The job's name, for people. */
            name: string;
            /** @description Addresses that could not be told of its end so far; only where one job is asked for. */
            notice_failures?: components["schemas"]["NoticeFailure"][];
            /** @description Addresses that are told when it has ended. */
            on_end?: components["schemas"]["OnEnd"][];
            /** @description The task that submitted it. */
            parent?: string | null;
            /**
             * Format: int32
             * @description The priority inside the queue; higher goes first.
             */
            priority: number;
            /** @description Name of its queue. */
            queue: string;
            reason?: components["schemas"]["JobReason"] | null;
            /** @description State of the job now. */
            state: components["schemas"]["JobState"];
            /** @description The steps of the job. */
            steps: components["schemas"]["Step"][];
            /** @description Why no further task starts; absent if the job was not stopped. */
            stopped?: string | null;
            /** @description The user who submitted it. */
            user: string;
        };
        /** @description A job was submitted, changed or ended. */
        JobEvent: {
            /** @description How many tasks are in which state. */
            counts: components["schemas"]["Counts"];
            /**
             * Format: int64
             * @description Id of the job, unique on the farm.
             */
            job: number;
            /** @description State of the job now. */
            state: components["schemas"]["JobState"];
        };
        /** @description What was kept of the directories of a job's tasks. */
        JobFiles: {
            /**
             * Format: int32
             * @description The index of the task with which the next page begins; absent at the end.
             */
            next?: number | null;
            /** @description The outputs of tasks, in their order. Of a page of tasks. */
            outputs: components["schemas"]["TaskOutputs"][];
            /** @description Steps with files, in the order of the job. */
            steps: components["schemas"]["StepFilesOf"][];
        };
        /**
         * @description Why a job is where it is: how the first failed task of a failed one did, or why the first waiting task of another
         *     waits.
         */
        JobReason: {
            /** @description A sentence for people. */
            message: string;
            /** @description One word for programs: the `cause` of a failure, or the `reason` for which a task waits. */
            word: string;
        };
        /**
         * @description The state of a job.
         * @enum {string}
         */
        JobState: "pending" | "running" | "held" | "succeeded" | "failed" | "canceled";
        /**
         * @description How a build gets its jobserver.
         * @enum {string}
         */
        Jobserver: "auto" | "fifo" | "pipes";
        /**
         * @description What a step says of its jobserver.
         * @enum {string}
         */
        JobserverRequest: "auto" | "fifo" | "pipes" | "detected" | "none";
        /**
         * @description How many processes a running task with a jobserver may run at a time, and how many it runs. Both count the one that
         *     every task may run.
         */
        JobserverUse: {
            held_back?: components["schemas"]["HeldBack"] | null;
            /**
             * Format: int32
             * @description Processes that it may run at a time now.
             */
            share: number;
            /**
             * Format: int32
             * @description Processes that it runs now.
             */
            used: number;
            /** @description True if it takes all that it is given. */
            wants: boolean;
        };
        /** @description What a running task with a jobserver has of its worker, and who has the rest. */
        JobserverWhy: components["schemas"]["JobserverUse"] & {
            /** @description What would let it run more, for people. */
            helps?: string[];
            /** @description What it runs, and why it runs no more, for people. */
            message: string;
            /**
             * Format: int32
             * @description Processes that it may run at a time at most.
             */
            most: number;
        };
        /** @description A worker's score for the task. */
        Judged: {
            /**
             * Format: double
             * @description The worker's load with the task: about 0 to 1, and more under pressure.
             */
            load: number;
            /** @description The points of each rule of the scoring policy. */
            rules: components["schemas"]["RulePoints"][];
            /**
             * Format: double
             * @description The sum of all points.
             */
            score: number;
            /** @description Name of the worker, unique on the farm. */
            worker: string;
        };
        /**
         * @description The kind of work of a step.
         * @enum {string}
         */
        Kind: "build" | "evaluation";
        /** @description Leases of workers, which their heartbeats renew. */
        Leases: {
            /**
             * Format: int64
             * @description Milliseconds since the one that has been silent longest was heard from; null without leases.
             */
            oldest_ms?: number | null;
            /** @description Workers that have one. */
            workers: number;
        };
        /**
         * @description A limit, such as a number of licences. Each task of a step that names it holds one while it runs, and so does each turn
         *     of a command.
         */
        Limit: {
            /**
             * Format: int64
             * @description Milliseconds of the first back-off of a task's step after such an exit.
             */
            back_off_ms?: number | null;
            /** @description Steps that back off now because the limit was busy. */
            backing_off?: number;
            /** @description Exit codes that mean 'no licence was free'. */
            busy_exits?: number[];
            /** @description Tasks that hold it now, by id, at most 20; absent in lists and in the answer to a change. */
            holders?: components["schemas"]["LimitHolder"][];
            /**
             * Format: int32
             * @description Tasks that may hold it at a time over the farm; absent is any number.
             */
            max?: number | null;
            /** @description The limit's name, unique on the farm. */
            name: string;
            /**
             * Format: int32
             * @description Tasks that may hold it at a time on one worker; absent is any number.
             */
            per_worker?: number | null;
            /** @description Turns of commands that hold it now, by number, at most 20; absent where `holders` is. */
            turns?: components["schemas"]["LimitTurn"][];
            /**
             * Format: int32
             * @description Tasks and turns that hold it now.
             */
            used: number;
        };
        /** @description A task that holds a limit. */
        LimitHolder: {
            /** @description The task's id, `JOB.INDEX`. */
            task: string;
            /** @description The user who submitted its job. */
            user: string;
            /** @description Name of the worker on which it runs. */
            worker: string;
        };
        /** @description A turn of a command that holds a limit. */
        LimitTurn: {
            /**
             * Format: int64
             * @description The turn's number.
             */
            turn: number;
            /** @description The user who asked for it. */
            user: string;
            /** @description Name of the worker that holds its room. */
            worker: string;
        };
        /** @description A worker's last load report. */
        Load: {
            /**
             * Format: int64
             * @description When the server received it.
             */
            at_ms: number;
            cache_space?: components["schemas"]["DiskSpace"] | null;
            /** @description True if the worker has only a part of its machine: then the pressure of its own control group counts. */
            confined: boolean;
            /**
             * Format: double
             * @description Speed of one of its cores, as it measured that; 1000 is the reference core.
             */
            core_score?: number | null;
            /**
             * Format: double
             * @description Foreign load: declared cpus that processes outside of Windlass use.
             */
            cpu_foreign?: number | null;
            /**
             * Format: double
             * @description Cpus in use, of those that the worker may use.
             */
            cpu_used?: number | null;
            /**
             * Format: double
             * @description Speed of its disks in MB/s, as measured with tasks.
             */
            disk_mb_s?: number | null;
            /** @description Mean number of runnable tasks over 1, 5 and 15 minutes. */
            load_average?: number[] | null;
            /** @description Pressures of the whole machine. */
            machine: components["schemas"]["Pressures"];
            /**
             * Format: int64
             * @description Bytes of available memory.
             */
            memory_available?: number | null;
            /**
             * Format: int64
             * @description Bytes of memory that its tasks hold.
             */
            memory_own?: number | null;
            /**
             * Format: double
             * @description What its network links receive, in Mbit/s.
             */
            network_in_mbit_s?: number | null;
            /**
             * Format: double
             * @description Speed of its network in Mbit/s, as measured with tasks that fetched something.
             */
            network_mbit_s?: number | null;
            /**
             * Format: double
             * @description What its network links send, in Mbit/s.
             */
            network_out_mbit_s?: number | null;
            /**
             * Format: double
             * @description Percent of its speed in use on the busiest link, mean of about 10 seconds; absent where no link tells its speed.
             */
            network_percent?: number | null;
            /** @description Pressures of the control group in which the worker was started. */
            own: components["schemas"]["Pressures"];
            session_space?: components["schemas"]["DiskSpace"] | null;
            state_space?: components["schemas"]["DiskSpace"] | null;
        };
        /** @description A line of a task's output. */
        LogLine: {
            /**
             * Format: int64
             * @description When it was there, by the worker's clock: up to a quarter of a second after its first byte was written. Absent
             *     where that is not known.
             */
            at_ms?: number | null;
            /**
             * Format: int64
             * @description Bytes that it takes in its stream, with its end. A line without an end has as many bytes as its text.
             */
            bytes: number;
            /** @description True if the line is not UTF-8, and bytes of it were replaced in the text. */
            lossy?: boolean;
            /**
             * Format: int64
             * @description The place of its first byte in its stream.
             */
            offset: number;
            /** @description Where the task wrote it. */
            stream: components["schemas"]["LogStream"];
            /** @description The line without its end. */
            text: string;
        };
        /** @description A part of both outputs of an attempt, in the order in which it was written. */
        LogLines: {
            /**
             * @description The lines, oldest first. Of those that were written in the same quarter of a second, standard output comes
             *     first.
             */
            lines: components["schemas"]["LogLine"][];
            /** @description True if more is there now. A running attempt may write more later. */
            more: boolean;
            /**
             * Format: int64
             * @description The offset of the next line of standard error.
             */
            next_stderr: number;
            /**
             * Format: int64
             * @description The offset of the next line of standard output.
             */
            next_stdout: number;
        };
        /**
         * @description One of a task's two outputs.
         * @enum {string}
         */
        LogStream: "stdout" | "stderr";
        /** @description A task for which the worker was scored and another worker won. */
        LostTask: {
            /**
             * Format: int64
             * @description When the task was placed.
             */
            at_ms: number;
            /**
             * Format: double
             * @description Points of this worker for the task.
             */
            score: number;
            /** @description Id of the task, `JOB.INDEX`. */
            task: string;
            /** @description The worker that won. */
            winner: string;
            /**
             * Format: double
             * @description Points of the worker that won.
             */
            winner_score: number;
        };
        /** @description The blobs that must be uploaded, because the user has not uploaded them before, or because they are gone. */
        MissingBlobs: {
            /** @description Each as `HASH/BYTES`, in the order of the question. */
            missing: string[];
        };
        /** @description An address that could not be told of a job's end so far. */
        NoticeFailure: {
            /** @description It is not tried any more. */
            given_up?: boolean;
            /**
             * Format: int32
             * @description How often it was tried since the server started.
             */
            tries: number;
            /** @description Why the last try failed. It names the host, never the whole address. */
            why: string;
        };
        /** @description An address that is told when a job has ended. */
        OnEnd: {
            /** @description It is told only of a job that fails. */
            only_failures?: boolean;
            /** @description A URL that begins with `https://` or `http://`, or `mailto:` and a mail address. */
            url: string;
        };
        /** @description The farm at a glance. It is at most a second old. */
        Overview: {
            /** @description Cpus of the workers that are up, and what of them is booked. */
            cpus: components["schemas"]["FarmCpus"];
            ended?: components["schemas"]["EndedJobs"] | null;
            /** @description Reasons why the whole farm stands still, in plain sentences; empty as a rule. */
            holds: string[];
            /** @description Jobs that have not ended, by what they do. */
            jobs: components["schemas"]["ActiveJobs"];
            /** @description Attempts in the last minute. */
            per_minute: components["schemas"]["AttemptRates"];
            /**
             * @description Workers that get no work for what ails them, the worst first, at most 50. The last of them are those on which a rule
             *     vetoes what waits. Behind them are at most 50 whose token expires soon.
             */
            suffering: components["schemas"]["SufferingWorker"][];
            /** @description Tasks of all active jobs. */
            tasks: components["schemas"]["Counts"];
            /**
             * Format: int64
             * @description When it was made.
             */
            time_ms: number;
            /** @description Time from ready to placed, in milliseconds, of the tasks that were placed in the last five minutes. */
            wait_ms: components["schemas"]["Quantiles"];
            /** @description Ready tasks by the reason for which they wait, the most frequent first. */
            waiting: components["schemas"]["WaitingTasks"][];
            /** @description Workers by state; forgotten ones are not counted. */
            workers: components["schemas"]["WorkerCounts"];
        };
        /** @description A page of a list. */
        Page_Job: {
            /** @description The entries of this page. */
            items: components["schemas"]["Job"][];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            next?: string | null;
        };
        /** @description A page of a list. */
        Page_Limit: {
            /** @description The entries of this page. */
            items: components["schemas"]["Limit"][];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            next?: string | null;
        };
        /** @description A page of a list. */
        Page_Queue: {
            /** @description The entries of this page. */
            items: components["schemas"]["Queue"][];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            next?: string | null;
        };
        /** @description A page of a list. */
        Page_Task: {
            /** @description The entries of this page. */
            items: (components["schemas"]["Attempt"] & {
                /**
                 * Format: int64
                 * @description When a running task is expected to end, by the mean run time of its step; absent where that is not known. A time
                 *     that has passed is that of a task that takes longer than others.
                 */
                expected_end_ms?: number | null;
                failure?: components["schemas"]["Failure"] | null;
                /** @description Earlier attempts, and results that came too late; only if one task is requested. */
                history?: components["schemas"]["Attempt"][];
                /** @description The task's id, `JOB.INDEX`. */
                id: string;
                /**
                 * Format: int32
                 * @description Its index in the job, from 0.
                 */
                index: number;
                /**
                 * Format: int64
                 * @description The id of its job.
                 */
                job: number;
                jobserver?: components["schemas"]["JobserverUse"] | null;
                /**
                 * Format: double
                 * @description The progress that it reports, in percent; only while it is booked or runs.
                 */
                progress?: number | null;
                /** @description State of the task now. */
                state: components["schemas"]["TaskState"];
                /** @description The status that it reports, or what its worker does with its files; only while it is booked or runs. */
                status?: string | null;
                /** @description The name of its step. */
                step: string;
                /** @description Its value, if the step has values. */
                value?: string | null;
            })[];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            next?: string | null;
        };
        /** @description A page of a list. */
        Page_Token: {
            /** @description The entries of this page. */
            items: components["schemas"]["Token"][];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            next?: string | null;
        };
        /** @description A page of a list. */
        Page_Worker: {
            /** @description The entries of this page. */
            items: components["schemas"]["Worker"][];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            next?: string | null;
        };
        /** @description The values of the tasks of a step. */
        Param: {
            /** @description A task for each number. */
            range: components["schemas"]["Range"];
        } | {
            /** @description A task for each value. */
            values: string[];
        } | {
            /** @description A task for each cell of a parameter space. */
            space: components["schemas"]["Space"];
        };
        /** @description A waiting step, and why it is not on the worker. */
        PassedStep: {
            /**
             * Format: int64
             * @description Id of the step's job.
             */
            job: number;
            /** @description All reasons, for people. */
            message: string;
            /** @description The worker with more points. */
            preferred?: string | null;
            /**
             * Format: double
             * @description The points of `preferred`.
             */
            preferred_score?: number | null;
            /** @description Name of the job's queue. */
            queue: string;
            /** @description The first reason in one word, for programs. */
            reason: components["schemas"]["WhyWord"];
            /**
             * Format: double
             * @description This worker's points for the step; absent if it was not scored.
             */
            score?: number | null;
            /** @description Name of the step, unique in its job. */
            step: string;
            /**
             * Format: int32
             * @description Ready tasks of the step.
             */
            tasks: number;
        };
        /**
         * @description How a path is written.
         * @enum {string}
         */
        PathFormat: "POSIX" | "WINDOWS";
        /** @description Where a path of another machine is on the workers. */
        PathRule: {
            /** @description The path on the workers. */
            destination: string;
            /** @description The path on the other machine. */
            source: string;
            /** @description How the source is written. */
            source_format?: components["schemas"]["PathFormat"];
        };
        /** @description A step with ready tasks. */
        PendingJob: {
            /** @description Number of steps that it depends on. */
            dependency_count: number;
            /**
             * Format: double
             * @description Tasks that depend on it, those on the longest path weighted more.
             */
            dependents: number;
            /**
             * Format: int64
             * @description Id of the step's job.
             */
            job_id: number;
            /** @description Name of the job. */
            job_name: string;
            /** @description The step's kind of work. */
            kind: components["schemas"]["Kind"];
            /** @description The same as a sentence, as the explanation of that task has it. */
            message: string;
            /** @description Name of the step, unique in its job. */
            name: string;
            /** @description Name of the job's queue. */
            queue: string;
            /**
             * Format: int64
             * @description Since when it has ready tasks.
             */
            queued_at: number;
            /** @description The reason for which its first ready task waits, in one word. */
            reason: components["schemas"]["WhyWord"];
            /** @description Id of its first ready task. */
            task_id: string;
            /**
             * Format: int32
             * @description Number of its ready tasks.
             */
            tasks: number;
            /** @description User who submitted the job. */
            user: string;
        };
        /** @description Steps that have ready tasks. */
        PendingJobs: {
            /** @description Steps with ready tasks, queue by queue in the order of turns, and inside a queue in its own order. */
            jobs: components["schemas"]["PendingJob"][];
            /**
             * Format: int64
             * @description Ready tasks that are not in `jobs`.
             */
            other_pending: number;
        };
        /** @description Percent of the time with stalls, by what was waited for, and of the network's use; null is unknown. */
        Percents: {
            /**
             * Format: double
             * @description Of waits for a cpu.
             */
            cpu?: number | null;
            /**
             * Format: double
             * @description Of waits for input and output.
             */
            io?: number | null;
            /**
             * Format: double
             * @description Of waits for memory.
             */
            memory?: number | null;
            /**
             * Format: double
             * @description Of its speed in use on the busiest network link.
             */
            network?: number | null;
        };
        /** @description Stall time by how many processes stalled, as in the kernel's pressure information. */
        Pressure: {
            full?: components["schemas"]["Stall"] | null;
            some?: components["schemas"]["Stall"] | null;
        };
        /** @description Stall time by what was waited for. */
        Pressures: {
            cpu?: components["schemas"]["Pressure"] | null;
            io?: components["schemas"]["Pressure"] | null;
            memory?: components["schemas"]["Pressure"] | null;
        };
        /** @description Two quantiles of something; null where nothing of it happened. */
        Quantiles: {
            /**
             * Format: double
             * @description Half are at most this.
             */
            p50?: number | null;
            /**
             * Format: double
             * @description Nineteen of twenty are at most this.
             */
            p95?: number | null;
        };
        /** @description A queue that has or had work, or that an administrator configured. */
        Queue: {
            /**
             * Format: int32
             * @description The band, 0 to 9; a higher band is served first.
             */
            band: number;
            /**
             * Format: int64
             * @description Tasks booked since the server started.
             */
            booked: number;
            /**
             * Format: double
             * @description Cpus that its tasks may hold while no other queue can use them; absent is the quota.
             */
            burst_cpus?: number | null;
            /**
             * @description What the queue is charged for a task: `time`, the part of a worker that it holds times its run time, or `task`,
             *     one for each.
             */
            charge?: string;
            /**
             * Format: double
             * @description Cpus that it holds or could use now, as far as its quota and a pause let it; absent where the server is of an
             *     earlier release.
             */
            demand_cpus?: number | null;
            /**
             * Format: double
             * @description The weight that it counts with: less than its own if its own entitles it to more than it wants. Absent if all
             *     queues of its band get what they want, so that no weight makes a difference.
             */
            effective_weight?: number | null;
            /**
             * Format: double
             * @description Cpus to which its band and its weight entitle it, of all workers that take work; absent where the server is of
             *     an earlier release.
             */
            entitled_cpus?: number | null;
            /** @description Whether steps that say nothing of a jobserver have one; absent: builds that a client detected have one. */
            jobserver?: boolean | null;
            /** @description The queue's name, unique on the farm. */
            name: string;
            /**
             * Format: int64
             * @description Parked jobs: their turn is so far off that only the store has them.
             */
            parked_jobs?: number;
            /** @description The note of an administrator who paused it; absent if it is not paused. */
            paused?: string | null;
            /**
             * Format: double
             * @description Cpus that its tasks may hold while other queues could use them. Absent: the queue has no quota.
             */
            quota_cpus?: number | null;
            /** @description Steps with ready tasks that are in memory. */
            ready_steps: number;
            /**
             * Format: int32
             * @description Tasks booked or running.
             */
            running: number;
            /**
             * Format: double
             * @description Cpus that these tasks hold.
             */
            running_cpus?: number;
            /**
             * Format: double
             * @description Its part, from 0 to 1, of all charges of the queues of its band since the server started; absent if there were
             *     none.
             */
            share?: number | null;
            /** @description Whether its users take turns, or all its jobs are in one order. */
            turns?: components["schemas"]["TurnsBy"];
            /** @description Weights of its users against each other; 100 for a user who is not listed. */
            user_weights?: {
                [key: string]: number;
            };
            /** @description Users who may submit to it, besides administrators and the user of its name; `*` is all users. */
            users?: string[];
            /**
             * Format: int64
             * @description Ready tasks, parked ones included.
             */
            waiting?: number;
            /**
             * Format: int32
             * @description Its weight in its band.
             */
            weight: number;
        };
        /** @description Cpus that a queue holds. */
        QueueCpus: {
            /**
             * Format: double
             * @description Cpus booked by its tasks.
             */
            cpus: number;
            /** @description Name of the queue, unique on the farm. */
            queue: string;
        };
        /** @description A queue over time. */
        QueueSeries: {
            /** @description Cpus that it held. */
            busy_cpus: (number | null)[];
            /** @description Cpus that it was entitled to. */
            entitled_cpus: (number | null)[];
            /** @description Name of the queue, unique on the farm. */
            queue: string;
        };
        /** @description Numbers from `start` to `end`, both included. */
        Range: {
            /**
             * Format: int64
             * @description The upper end; the last number if the step meets it.
             */
            end: number;
            /**
             * Format: int64
             * @description The first number of the range.
             */
            start: number;
            /**
             * Format: int64
             * @description The difference from one number to the next, which may be negative; 1 by default.
             */
            step?: number;
        };
        /** @description The work that a worker is reserved for. */
        ReservedFor: {
            /**
             * Format: int64
             * @description When that step is predicted to start there; absent if that is not known.
             */
            expected_start_ms?: number | null;
            /**
             * Format: int64
             * @description The job of the first step that it is reserved for; absent if none waits any more.
             */
            job?: number | null;
            /** @description Name of that step in its job. */
            step?: string | null;
            /**
             * Format: int64
             * @description Since when that step waits.
             */
            waits_since_ms?: number | null;
        };
        /** @description Amounts of resources, of a task or a worker. */
        Resources: {
            /**
             * Format: double
             * @description Cpus, in hundredths at the finest.
             */
            cpus?: number;
            /** @description Amounts of other resources, by name. */
            custom?: {
                [key: string]: number;
            };
            /**
             * Format: int64
             * @description Bytes of gpu memory over all gpus.
             */
            gpu_memory?: number;
            /**
             * Format: int32
             * @description Number of whole gpus.
             */
            gpus?: number;
            /**
             * Format: int64
             * @description Bytes of memory. For a task also its limit. 0 books none and sets no limit.
             */
            memory?: number;
        };
        /**
         * @description The role of the holder of a token.
         * @enum {string}
         */
        Role: "admin" | "submitter" | "user" | "viewer" | "worker";
        /** @description A rule of the scoring policy. */
        RuleEntry: {
            /** @description What the rule rewards or vetoes. */
            description: string;
            /** @description Name of the scoring rule. */
            rule: string;
        };
        /** @description The points that a rule gave. */
        RulePoints: {
            /**
             * Format: double
             * @description Points; may be negative.
             */
            points: number;
            /** @description The reason for the points, for people. */
            reason: string;
            /** @description Name of the scoring rule, which never changes. */
            rule: string;
        };
        /** @description The points that a rule gave winners. */
        RuleSummary: {
            /**
             * Format: double
             * @description The mean of its points.
             */
            avg: number;
            /**
             * Format: double
             * @description The most of its points.
             */
            max: number;
            /**
             * Format: double
             * @description The fewest of its points.
             */
            min: number;
            /** @description Name of the scoring rule. */
            rule: string;
        };
        /** @description How many workers the farm wants, by class of machines. */
        Scaling: {
            /**
             * Format: int64
             * @description Waiting tasks that a quota, a limit or a cap keeps from starting. More workers would not start them.
             */
            blocked_tasks?: number;
            /**
             * Format: int64
             * @description Waiting tasks that some workers of the farm could run, and further workers could not: they name their workers, for
             *     example.
             */
            bound_tasks?: number;
            /** @description The classes of machines, those of the smallest workers first; at most 33. */
            classes: components["schemas"]["ClassScaling"][];
            /** @description Waiting work that no worker could run, not even one more of a class. */
            none: components["schemas"]["UnrunnableWork"];
            /**
             * Format: int64
             * @description Ready tasks of paused queues and of held jobs. More workers would not start them.
             */
            paused_tasks?: number;
            /**
             * Format: int64
             * @description Milliseconds within which all tasks that wait should have started: the setting `scaling.target_wait_s`.
             */
            target_wait_ms: number;
            /** @description Classes of work that were not counted, because there are more than 256. */
            work_classes_left_out?: number;
        };
        /** @description The scheduler at work. */
        SchedulerFigures: {
            /** @description Milliseconds until a batch was durable, over the last five minutes. */
            commit_ms: components["schemas"]["Quantiles"];
            /**
             * Format: double
             * @description Tasks placed per second, mean of the last minute.
             */
            decisions_per_s: number;
            instance?: components["schemas"]["InstanceFigures"] | null;
            /**
             * Format: int64
             * @description Results since the server started that were refused, because another attempt is booked.
             */
            late_results: number;
            /** @description Leases of workers, which their heartbeats renew. */
            leases: components["schemas"]["Leases"];
            /** @description Workers that are left out for their faults. */
            left_out: number;
            /** @description Workers that are reserved for blocked work. */
            reservations: number;
            /** @description Milliseconds of such a round, over the last five minutes. */
            round_ms: components["schemas"]["Quantiles"];
            /**
             * Format: double
             * @description Rounds per second that placed something, mean of the last minute.
             */
            rounds_per_s: number;
            /**
             * Format: int64
             * @description Batches since the server started that the store did not take.
             */
            store_failures: number;
            /**
             * Format: double
             * @description Cpus that are idle while work waits, because nothing that waits fits there.
             */
            stranded_cores: number;
            /**
             * Format: int64
             * @description When it was made.
             */
            time_ms: number;
        };
        /** @description A summary of the winners' scores in recent placement decisions. */
        ScoringSummary: {
            /** @description Histogram of the winners' points, in twelve columns of equal width; empty without decisions. */
            histogram: components["schemas"]["Column"][];
            /** @description The points that each rule gave winners, the rule with the largest mean first. */
            rules: components["schemas"]["RuleSummary"][];
            /** @description Number of decisions that are summarized. */
            sample_size: number;
            /**
             * Format: double
             * @description The mean of the winners' points.
             */
            score_avg?: number | null;
            /**
             * Format: double
             * @description The most points of a winner.
             */
            score_max?: number | null;
            /**
             * Format: double
             * @description The fewest points of a winner; null without decisions.
             */
            score_min?: number | null;
        };
        /** @description An event of the farm. */
        ServerEvent: {
            /** @description A job was submitted, changed or ended. */
            job: components["schemas"]["JobEvent"];
        } | {
            /** @description Tasks of one job changed. */
            tasks: components["schemas"]["TasksEvent"];
        } | {
            /** @description A worker connected, disconnected, or changed its state. */
            worker: components["schemas"]["WorkerEvent"];
        } | "lagged";
        /** @description The load of a worker, by the names of build farms. */
        ServerLoad: {
            /** @description True if it gets work that fits. False also where a rule vetoes what waits and would fit. */
            accepting_jobs: boolean;
            /**
             * Format: int64
             * @description Free bytes of the cache directory that has least; null is unknown, and for a worker without caches.
             */
            cache_free_bytes?: number | null;
            /**
             * Format: double
             * @description Percent of the time in which some process waited for a cpu, mean of ten seconds; null is unknown.
             */
            cpu_pressure?: number | null;
            /**
             * Format: double
             * @description The load by which workers are compared: with one more task of one cpu, and weighted by pressure.
             */
            effective_load?: number | null;
            /**
             * Format: double
             * @description The same for input and output.
             */
            io_pressure?: number | null;
            /**
             * Format: double
             * @description Cpus that its tasks and allocations ask for, as a part of those that it declares; null for a worker without cpus. A
             *     compile asks for one. A build server takes a few more compiles than it has cpus, and may have more than 1.
             */
            job_load?: number | null;
            /** @description Tasks that run there, prefetched tasks, and allocations of outside clients. */
            jobs_assigned: number;
            /**
             * Format: double
             * @description The same for memory.
             */
            memory_pressure?: number | null;
            /**
             * Format: double
             * @description Percent of its speed in use on its busiest network link, mean of ten seconds; null is unknown.
             */
            network_use?: number | null;
            /**
             * Format: double
             * @description Cpus that it declares.
             */
            num_cpus: number;
            /** @description Why it gets no work. */
            reason?: string | null;
            /** @description Name of the worker, unique on the farm. */
            server_id: string;
            /**
             * Format: int64
             * @description Free bytes of its session directory; null is unknown.
             */
            session_free_bytes?: number | null;
            /**
             * Format: int64
             * @description Free bytes of its state directory; null is unknown.
             */
            state_free_bytes?: number | null;
        };
        /** @description A part of the list of workers with their loads. */
        ServerLoads: {
            /**
             * Format: int64
             * @description Give this as `cursor` for the next part; absent in the last.
             */
            next?: number | null;
            /** @description Workers, ordered by id. */
            servers: components["schemas"]["ServerLoad"][];
        };
        /** @description Environments and files that a step sets up once on a worker for all of its tasks there. */
        Session: {
            cancel?: components["schemas"]["Cancel"] | null;
            /** @description Environments, entered in this order before the first task and left in reverse. */
            environments?: components["schemas"]["Environment"][];
            /** @description Files that are written for each task, as `{{Task.File.NAME}}`. */
            files?: components["schemas"]["EmbeddedFile"][];
            /** @description Where paths of other machines are on the workers. */
            path_mapping?: components["schemas"]["PathRule"][];
        };
        /** @description Changes of a limit: what is absent stays, null removes. Steps that back off because of it are tried again at once. */
        SetLimit: {
            /**
             * Format: int64
             * @description Milliseconds for which the task's step then backs off, 30000 by default; twice as long each time in a row, up to
             *     16 times as long.
             */
            back_off_ms?: number | null;
            /**
             * @description Exit codes, from 1 to 255, that mean 'no licence was free': the task is run again without spending a retry, and
             *     is not counted as failed.
             */
            busy_exits?: number[] | null;
            /**
             * Format: int32
             * @description Tasks that may hold it at a time over the farm; with 0 none starts.
             */
            max?: number | null;
            /**
             * Format: int32
             * @description Tasks that may hold it at a time on one worker, from 1.
             */
            per_worker?: number | null;
        };
        /** @description Another priority for a job. */
        SetPriority: {
            /**
             * Format: int32
             * @description The priority inside the queue; higher goes first.
             */
            priority: number;
        };
        /** @description Changes of a queue: what is absent stays, null removes. */
        SetQueue: {
            /**
             * Format: int32
             * @description The band, 0 to 9; a higher band is served first. null is the default of its name: 9 for `vip`, 1 for `idle`, 3
             *     for all others.
             */
            band?: number | null;
            /**
             * Format: double
             * @description Cpus that its tasks may hold while no other queue can use them; null is the quota.
             */
            burst_cpus?: number | null;
            /**
             * @description true gives a jobserver to each step that says nothing of one and can have one; false gives none to such steps, not
             *     even to builds that a client detected. null: builds that a client detected have one. A change is for jobs that are
             *     submitted afterwards.
             */
            jobserver?: boolean | null;
            /** @description Pauses the queue, with a note of the reason; null resumes it. */
            paused?: string | null;
            /**
             * Format: double
             * @description Cpus that its tasks may hold while other queues could use them. Null removes the quota and the burst.
             */
            quota_cpus?: number | null;
            turns?: components["schemas"]["TurnsBy"] | null;
            /** @description Weights of users inside the queue, 1 to 10000; null is 100 again. Absent users keep theirs. */
            user_weights?: {
                [key: string]: number | null;
            };
            /** @description Users who may submit to it, besides administrators and the user of its name; `*` is all users. */
            users?: string[] | null;
            /**
             * Format: int32
             * @description The weight against the other queues of its band, 1 to 10000; 100 by default.
             */
            weight?: number | null;
        };
        /**
         * @description How the caller is known.
         * @enum {string}
         */
        SignedInBy: "session" | "socket" | "token" | "none";
        /** @description Named task parameters and how their values combine. */
        Space: {
            combination?: components["schemas"]["Combination"] | null;
            /** @description The parameters, in the order in which they are shown. */
            params: components["schemas"]["TaskParam"][];
        };
        /** @description Stall time, in percent. */
        Stall: {
            /**
             * Format: double
             * @description Mean of about 10 seconds.
             */
            avg10: number;
            /**
             * Format: double
             * @description Mean of about 5 minutes.
             */
            avg300: number;
            /**
             * Format: double
             * @description Mean of about a minute.
             */
            avg60: number;
            /**
             * Format: int64
             * @description Total stall time in microseconds since the machine started.
             */
            total_us: number;
            /**
             * Format: double
             * @description The exact share since the previous report.
             */
            window?: number | null;
        };
        /** @description Tasks that would start on a worker. */
        StartsOn: {
            /**
             * Format: int32
             * @description Number of these tasks.
             */
            tasks: number;
            /** @description Name of the worker. */
            worker: string;
        };
        /** @description A step of a job. */
        Step: components["schemas"]["Hints"] & {
            /** @description Program and arguments; only if one job is requested. */
            command?: string[];
            /** @description The working directory; only if one job is requested. */
            cwd?: string | null;
            /** @description Steps of the job that it depends on. */
            depends?: components["schemas"]["Depends"][];
            /**
             * Format: int32
             * @description The index of its first task in the job.
             */
            first_task: number;
            /** @description Limits, such as licences, of which each task holds one while it runs. */
            limits?: string[];
            /**
             * Format: int32
             * @description How many of its tasks may run at a time; absent is any number.
             */
            max_running?: number | null;
            /** @description The step's name, unique in the job. */
            name: string;
            /**
             * Format: int32
             * @description The number of tasks in a row that start together, each on another worker; absent is one by one.
             */
            nodes?: number | null;
            /**
             * Format: int32
             * @description Processes that run its tasks, if none fails and no limit divides them further; only of a step with chunks of a
             *     fixed size.
             */
            processes?: number | null;
            /** @description The amounts that each task holds. */
            resources: components["schemas"]["Resources"];
            /**
             * Format: int32
             * @description How often a failed task is run again.
             */
            retries: number;
            /** @description Tags that the worker must have. */
            tags?: string[];
            /**
             * Format: int32
             * @description Number of its tasks.
             */
            tasks: number;
            /**
             * Format: int64
             * @description Milliseconds that a task may run.
             */
            time_limit_ms?: number | null;
            /** @description The umask of its tasks, in octal digits; only if one job is requested. Absent is that of their worker. */
            umask?: string | null;
            /** @description The name of the step with which it starts. */
            with?: string | null;
            /** @description The only workers that may run it; empty is any. */
            workers?: string[];
        };
        /** @description Files of a step's tasks. With them each task runs in a new directory of its own. */
        StepFiles: {
            /**
             * @description Globs of what is kept when a task ends, however it ends: `*.o`, `build/**`. Paths are those below the task's
             *     directory.
             */
            outputs?: string[];
            /** @description Names of earlier steps, of which the outputs are put into the directory too. The step depends on each of them. */
            outputs_of?: string[];
            /** @description The tree of inputs, which was uploaded before: `HASH/BYTES`, the SHA-256 and the length of its root `Directory`. */
            root?: string | null;
            /** @description The standard input of each task, which was uploaded before: `HASH/BYTES`. */
            stdin?: string | null;
        };
        /** @description The files of one step. */
        StepFilesOf: components["schemas"]["StepFiles"] & {
            /**
             * Format: int64
             * @description Bytes of the tree of inputs; absent where it is gone.
             */
            input_bytes?: number | null;
            /**
             * Format: int64
             * @description Files in the tree of inputs; absent where it is gone.
             */
            input_files?: number | null;
            /** @description The name of the step. */
            step: string;
        };
        /** @description A step: tasks with one command and one set of requirements. */
        StepRequest: {
            /** @description The keys that its tasks read from caches of workers, each with its bytes; null is unknown. */
            caches?: {
                [key: string]: number | null;
            };
            chunks?: components["schemas"]["ChunksRequest"] | null;
            /**
             * @description Program and arguments, not a shell line. `{}`, `{.}`, `{/}`, `{//}` and `{/.}` stand for the task's value, as in
             *     GNU parallel.
             */
            command: string[];
            /** @description The requested cpus are only the first guess; later tasks are sized by the task profile. */
            cpus_auto?: boolean;
            /**
             * Format: double
             * @description Cores that a task can use at most. It waits for the requested cpus alone, and takes more of its worker, up to
             *     this number, where nothing else that waits has a use for them. It finds what it has in `WINDLASS_CPUS`.
             *     With `jobserver` it is the most processes that it may run at a time; absent is as many as its worker has cpus.
             */
            cpus_max?: number | null;
            /** @description The working directory; `/` by default. */
            cwd?: string | null;
            /**
             * Format: int64
             * @description Target queueing delay: milliseconds that a ready task should wait at most.
             */
            deadline_ms?: number | null;
            /** @description Steps of this job that it depends on. */
            depends?: components["schemas"]["Depends"][];
            /** @description The complete environment of the tasks. */
            env?: {
                [key: string]: string;
            };
            /** @description The tasks need a worker with the tag `fetch`. */
            fetches?: boolean;
            files?: components["schemas"]["StepFiles"] | null;
            jobserver?: components["schemas"]["JobserverRequest"] | null;
            kind?: components["schemas"]["Kind"] | null;
            /** @description Names of limits, such as licences, of which each task holds one while it runs. */
            limits?: string[];
            /**
             * Format: int32
             * @description How many of the step's tasks may run at a time; by default any number.
             */
            max_running?: number | null;
            /** @description The step's name, unique in the job; `main` by default. */
            name?: string | null;
            /** @description The tasks mostly wait for the network: prefer workers with a fast one. */
            network_bound?: boolean;
            /**
             * Format: int32
             * @description The number of tasks of each value, 1 by default. They start together, each on another worker, or none starts.
             */
            nodes?: number | null;
            param?: components["schemas"]["Param"] | null;
            /** @description The tasks are short, and best run where their inputs are. */
            prefer_local?: boolean;
            resources?: components["schemas"]["Resources"] | null;
            /**
             * Format: int32
             * @description How often a failed task is run again.
             */
            retries?: number;
            session?: components["schemas"]["Session"] | null;
            /** @description Tags that the worker must have: `key`, `key=value` or `key=a|b`. */
            tags?: string[];
            /**
             * Format: int64
             * @description Milliseconds that a task may run.
             */
            time_limit_ms?: number | null;
            /** @description The umask of the tasks, in octal digits such as `0022`; absent is that of their worker. */
            umask?: string | null;
            /** @description The name of an earlier step with which it starts: the tasks of the first values of both together, and so on. */
            with?: string | null;
            /** @description Names of the only workers that may run it; empty is any. */
            workers?: string[];
        };
        /** @description The answer to a submission: what was submitted or, with `dry_run`, what would be. */
        SubmitAnswer: components["schemas"]["Submitted"] | components["schemas"]["DryRun"];
        /** @description A job to be submitted. */
        SubmitRequest: {
            /** @description Jobs that must succeed first. */
            after?: number[];
            /** @description Jobs that must end first, whatever way. */
            after_any?: number[];
            /** @description Jobs that must fail or be cancelled first. */
            after_not_ok?: number[];
            /**
             * Format: int64
             * @description The job after whose tasks its own come, task by task: each starts when the task of its number there has
             *     succeeded, and is skipped if that one has not when its job ends. Both jobs have the same number of tasks.
             */
            after_tasks?: number | null;
            fail_fast?: components["schemas"]["FailFast"] | null;
            /**
             * @description The failed tasks with which `fail_fast` takes effect: a number such as `3`, or `5%` for more than 5 percent of
             *     the job's tasks; by default one task. Without `fail_fast`, running tasks finish.
             */
            fail_limit?: string | null;
            /** @description Idempotency key of the submitter's choice: a second submission with it returns the first job. */
            key?: string | null;
            /** @description Accept limits that are not set: such a limit holds nothing back until it is. By default the job is refused. */
            limit_unset_ok?: boolean;
            /**
             * Format: int32
             * @description How many of the job's tasks may run at a time; by default any number.
             */
            max_running?: number | null;
            /**
             * @description The job's name, for people; by default the first step's program. That of a shell is named by its script: `sh FILE`
             *     by the file, `sh -c SCRIPT` by the script's first program.
             */
            name?: string | null;
            /** @description Addresses that are told when the job has ended; 8 at most. */
            on_end?: components["schemas"]["OnEnd"][];
            /** @description The task that submits this job and waits for it. */
            parent?: string | null;
            /** @description Refuse the job if no worker of the farm, and no declared class of machines, could ever run one of its steps. */
            placeable_only?: boolean;
            /**
             * Format: int32
             * @description The priority inside the queue; higher goes first.
             */
            priority?: number;
            /** @description The queue; by default the one of the user's name. */
            queue?: string | null;
            /** @description The steps of the job. */
            steps: components["schemas"]["StepRequest"][];
            /** @description The user who submits it; by default the user of the caller's token. */
            user?: string | null;
        };
        /** @description The answer to a submission. */
        Submitted: {
            /** @description True if the job was submitted before with the same key. */
            existing: boolean;
            /**
             * Format: int64
             * @description Id of the job, unique on the farm.
             */
            job: number;
            /** @description True if the farm had no queue of that name, and it is not the one of the user's name, `vip` or `idle`. */
            queue_created?: boolean;
            /** @description Steps that no worker that the farm has now could run, and no declared class of machines. */
            unplaceable?: components["schemas"]["Unplaceable"][];
        };
        /** @description A worker that gets no work, and why. */
        SufferingWorker: {
            /** @description The reason, in a few words. */
            reason: string;
            /** @description Name of the worker, unique on the farm. */
            worker: string;
        };
        /** @description A task of a job, with its last attempt. */
        Task: components["schemas"]["Attempt"] & {
            /**
             * Format: int64
             * @description When a running task is expected to end, by the mean run time of its step; absent where that is not known. A time
             *     that has passed is that of a task that takes longer than others.
             */
            expected_end_ms?: number | null;
            failure?: components["schemas"]["Failure"] | null;
            /** @description Earlier attempts, and results that came too late; only if one task is requested. */
            history?: components["schemas"]["Attempt"][];
            /** @description The task's id, `JOB.INDEX`. */
            id: string;
            /**
             * Format: int32
             * @description Its index in the job, from 0.
             */
            index: number;
            /**
             * Format: int64
             * @description The id of its job.
             */
            job: number;
            jobserver?: components["schemas"]["JobserverUse"] | null;
            /**
             * Format: double
             * @description The progress that it reports, in percent; only while it is booked or runs.
             */
            progress?: number | null;
            /** @description State of the task now. */
            state: components["schemas"]["TaskState"];
            /** @description The status that it reports, or what its worker does with its files; only while it is booked or runs. */
            status?: string | null;
            /** @description The name of its step. */
            step: string;
            /** @description Its value, if the step has values. */
            value?: string | null;
        };
        /** @description A change of one task. */
        TaskEvent: {
            /**
             * Format: int32
             * @description The attempt that changed.
             */
            attempt: number;
            /**
             * Format: int64
             * @description Bytes that the attempt wrote to standard error.
             */
            err_bytes?: number;
            /**
             * Format: int32
             * @description The exit code, or the code that a shell would report instead, such as 137 for SIGKILL.
             */
            exit_code?: number | null;
            /**
             * Format: int32
             * @description The task's index in its job.
             */
            index: number;
            /**
             * Format: int64
             * @description Bytes that the attempt wrote to standard output.
             */
            out_bytes?: number;
            /** @description The task's new state. */
            state: components["schemas"]["TaskState"];
        };
        /** @description The states of a job's tasks, in order of their index, as runs. */
        TaskGrid: {
            /**
             * Format: int32
             * @description The index of the first task of the first run.
             */
            from: number;
            /**
             * Format: int32
             * @description Give this as `from` for the rest; absent if there is none.
             */
            next?: number | null;
            /** @description Runs of tasks in the same state, at most 50000. */
            runs: components["schemas"]["GridRun"][];
            /**
             * Format: int32
             * @description Number of all tasks of the job.
             */
            tasks: number;
        };
        /** @description The outputs of one task. */
        TaskOutputs: {
            /**
             * Format: int32
             * @description The attempt that made them.
             */
            attempt: number;
            /**
             * Format: int64
             * @description Bytes of these files, each counted wherever it is.
             */
            bytes: number;
            /**
             * Format: int64
             * @description Files in the tree.
             */
            files: number;
            /**
             * Format: int32
             * @description The task's place in the job.
             */
            index: number;
            /** @description The tree: `HASH/BYTES` of its root `Directory`. */
            root: string;
            /** @description What was not kept, each with the reason. */
            skipped?: string[];
        };
        /** @description A named parameter of a task. */
        TaskParam: {
            /** @description The parameter's name: `{{Task.Param.NAME}}` stands for its value. */
            name: string;
            /** @description Its values are paths: path mapping rules apply to `Task.Param`, and not to `Task.RawParam`. */
            path?: boolean;
            /** @description The values that it takes. */
            values: components["schemas"]["Values"];
        };
        /**
         * @description The state of a task.
         * @enum {string}
         */
        TaskState: "waiting" | "ready" | "booked" | "running" | "succeeded" | "failed" | "canceled" | "skipped";
        /** @description Changes of one job's tasks that became durable together. */
        TasksEvent: {
            /** @description The job's counts after the changes. */
            counts: components["schemas"]["Counts"];
            /**
             * Format: int64
             * @description Id of the job, unique on the farm.
             */
            job: number;
            /** @description The changes of single tasks. */
            tasks: components["schemas"]["TaskEvent"][];
        };
        /** @description A token, without its secret. */
        Token: {
            cache?: components["schemas"]["CacheRight"] | null;
            /**
             * Format: int64
             * @description When it was created.
             */
            created_ms: number;
            /**
             * Format: int64
             * @description When it expires; absent is never.
             */
            expires_ms?: number | null;
            /**
             * @description The users whose jobs its holder submits, for the role `submitter`: names, in which `*` stands for any
             *     characters.
             */
            for_users?: string[];
            /** @description The token's id, which is not secret. */
            id: string;
            /** @description A note by its creator. */
            note?: string;
            /** @description The queue of these jobs, for the role `submitter`. */
            queue?: string | null;
            /**
             * Format: int64
             * @description When it was revoked.
             */
            revoked_ms?: number | null;
            /** @description The role of its holder. */
            role: components["schemas"]["Role"];
            /** @description The systems whose outside clients that worker may serve: `nix`, `sccache`. */
            serves?: string[];
            /** @description The user that its holder is known as. */
            user: string;
            /** @description The worker that its holder may connect as, for the role `worker`. */
            worker?: string | null;
        };
        /** @description The place of a step in its queue, and of the queue in its band. */
        Turn: {
            /**
             * Format: int32
             * @description Band of the queue, 0 to 9.
             */
            band: number;
            /** @description True if the demand is more than these cpus. */
            contended?: boolean;
            /**
             * Format: double
             * @description Cpus that all queues hold or could use there.
             */
            demand_cpus?: number;
            /**
             * Format: int64
             * @description With `latest_start_ms`, between which times it is predicted to start: where earlier tasks like those before it
             *     took very different times.
             */
            earliest_start_ms?: number | null;
            /**
             * Format: double
             * @description Cpus to which its queue's band and weight entitle it.
             */
            entitled_cpus?: number;
            /**
             * Format: int64
             * @description When it is predicted to start; absent if that is not known.
             */
            expected_start_ms?: number | null;
            /**
             * Format: double
             * @description Cpus that its queue holds there.
             */
            held_cpus?: number;
            /**
             * Format: int64
             * @description See `earliest_start_ms`.
             */
            latest_start_ms?: number | null;
            /**
             * @description True if smaller tasks that come later may start first: they take room that is not enough for it, and no worker
             *     is reserved for it.
             */
            may_be_overtaken?: boolean;
            /**
             * Format: double
             * @description Cpus of all workers that could run it.
             */
            pool_cpus?: number;
            /** @description Name of the step's queue. */
            queue: string;
            /** @description Backlogged queues whose turn comes first. */
            queues_ahead: number;
            /** @description Steps of its own user in its queue that come first. */
            steps_ahead: number;
            /**
             * Format: int32
             * @description Tasks of its own step that come first.
             */
            tasks_ahead: number;
            /** @description Other users of its queue whose turn comes first. */
            users_ahead?: number;
            /**
             * Format: int32
             * @description Weight of the queue, 1 to 10000.
             */
            weight?: number;
        };
        /** @description What a client says of a turn when its command has ended: the next ones of the shape are sized by it. */
        TurnEnd: {
            /**
             * Format: int32
             * @description Its exit code, or the code that a shell would report instead, such as 137 for SIGKILL.
             */
            exit_code?: number | null;
            /** @description True if the kernel killed it because memory was short. */
            out_of_memory?: boolean;
            /**
             * Format: int64
             * @description The most bytes of memory that the command held, with all that it started.
             */
            peak_memory?: number | null;
            /**
             * Format: int64
             * @description How long it ran.
             */
            wall_ms: number;
        };
        /** @description What a client says of a turn while its command runs, at most once a second. */
        TurnHolds: {
            /**
             * Format: int64
             * @description Bytes of memory that the command and all that it started hold together.
             */
            memory: number;
        };
        /** @description The turns that wait and run now. */
        TurnList: {
            /** @description How many more there are than the answer lists. */
            more?: number;
            /** @description Those that run, then those that wait, each from the oldest on. */
            turns: components["schemas"]["ClientTurn"][];
        };
        /** @description A client asks for its turn on its own machine. */
        TurnRequest: {
            /** @description The command, for people. */
            command?: string | null;
            /**
             * Format: double
             * @description Cpus, in hundredths at the finest; by default 1. A command inside a task with a jobserver asks for 0, because the
             *     task has its cpus already.
             */
            cpus?: number | null;
            held?: components["schemas"]["HeldTurn"] | null;
            /** @description Limits of which it holds one each while it runs. */
            limits?: string[];
            /** @description Name of the machine on which the client runs, as the operating system tells it. Only workers there give it room. */
            machine: string;
            /**
             * Format: int64
             * @description Bytes of memory. Absent: what earlier turns of the same shape needed, or a part of what is free where nothing is
             *     known of it. Without a shape: none.
             */
            memory?: number | null;
            /** @description The queue; by default the one with the user's name. */
            queue?: string | null;
            /**
             * @description What the command is, from exact to general, such as `rustc|compile|serde` and `rustc|compile`. Its memory is
             *     that of the first of these texts of which something is known. A client that names one says what the command holds
             *     while it runs; until it does, all that is booked counts as not used yet.
             */
            shape?: string[];
            /**
             * Format: int64
             * @description How long it waits at most. With 0 it gets its turn at once or not at all.
             */
            wait_max_ms?: number | null;
            /** @description The root of the repository, or another text: turns of one user with different texts take turns. */
            worktree?: string | null;
        };
        /**
         * @description Where a turn stands.
         * @enum {string}
         */
        TurnState: "waits" | "runs" | "refused";
        /**
         * @description How the jobs of a queue are ordered.
         * @enum {string}
         */
        TurnsBy: "users" | "jobs";
        /** @description A step that no worker of the farm could run. */
        Unplaceable: {
            /** @description The reasons for which workers are ineligible, with their numbers. */
            reasons: components["schemas"]["IneligibleWorkers"][];
            /** @description Name of the step, unique in its job. */
            step: string;
        };
        /** @description Waiting work that no worker could run. */
        UnrunnableWork: {
            /** @description Ids of some of their jobs, at most 20 and only those that the caller may read. */
            jobs?: number[];
            /**
             * Format: int64
             * @description Waiting tasks of these.
             */
            tasks: number;
            /**
             * Format: int32
             * @description Classes of work, each of which needs a worker that no class has.
             */
            work_classes: number;
        };
        /** @description What attempts took, by day, user and queue. */
        Usage: {
            /** @description By day, newest first, then by user and queue; only those of which an attempt ended. */
            rows: components["schemas"]["UsageRow"][];
            /**
             * Format: int64
             * @description Beginning of the first day that the answer is of: that which was asked for, or a later one if the server has no
             *     older figures, or more rows than one answer has.
             */
            since_ms: number;
        };
        /** @description What the attempts of a user took in a queue on a day. */
        UsageRow: {
            /**
             * Format: int64
             * @description Milliseconds of cpu time of the attempts that ended on this day, those that were tried again too. An attempt whose
             *     cpu time was not measured counts with the time that it ran, times the cpus that it asked for.
             */
            cpu_ms: number;
            /**
             * Format: int64
             * @description Beginning of the day, in UTC.
             */
            day_ms: number;
            /**
             * Format: int64
             * @description Attempts of these that failed, or were lost with their worker.
             */
            failed: number;
            /** @description Name of the queue, unique on the farm; `others` with that user. */
            queue: string;
            /**
             * Format: int64
             * @description Number of attempts that ended, those that were tried again too.
             */
            tasks: number;
            /** @description The user of the jobs. Of a day with very many users and queues, the last are added up as `others`. */
            user: string;
        };
        /** @description The values of a parameter. */
        Values: {
            /** @description The numbers of these ranges, one range after the other. */
            ranges: components["schemas"]["Range"][];
        } | {
            /** @description A list of values. */
            list: string[];
        };
        /** @description The server's version, and the caller as the server knows it. */
        Version: {
            /** @description The word `windlass`, by which a client knows a server. */
            name: string;
            /**
             * Format: int32
             * @description The server's process id.
             */
            pid: number;
            role?: components["schemas"]["Role"] | null;
            /** @description The address of its store. */
            store: string;
            /** @description The user of the token; absent if the server asks for none. */
            user?: string | null;
            /** @description Release of the server, such as `0.1.0`. */
            version: string;
            /** @description The worker of the token, for the role `worker`. */
            worker?: string | null;
        };
        /** @description Tasks that wait for one reason. */
        WaitingTasks: {
            /** @description The reason in one word. */
            reason: components["schemas"]["WhyWord"];
            /**
             * Format: int64
             * @description Number of ready tasks.
             */
            tasks: number;
            /** @description The reason as a sentence. */
            text: string;
        };
        /** @description Why a task is where it is. */
        Why: {
            /**
             * Format: int64
             * @description Until when its step backs off because a licence was busy.
             */
            backs_off_until_ms?: number | null;
            /** @description Changes that would make it run, the smallest first. */
            changes?: components["schemas"]["Change"][];
            /**
             * Format: int64
             * @description When the decision was made that placed it.
             */
            decided_ms?: number | null;
            failure?: components["schemas"]["FailedTask"] | null;
            jobserver?: components["schemas"]["JobserverWhy"] | null;
            /** @description The best of the workers that could run it now, or those of the decision that placed it, the winner first. */
            judged?: components["schemas"]["Judged"][];
            /** @description The reason as a sentence for people. */
            message: string;
            /** @description Number of workers that could run it now. */
            open_workers: number;
            /** @description Name of the scoring policy. */
            policy?: string;
            /** @description The reason in one word, for programs. */
            reason: components["schemas"]["WhyWord"];
            /** @description The reasons for which the other workers are ineligible. */
            ruled_out?: components["schemas"]["IneligibleWorkers"][];
            /** @description State of the task now. */
            state: components["schemas"]["TaskState"];
            /** @description The task's id, `JOB.INDEX`. */
            task: string;
            turn?: components["schemas"]["Turn"] | null;
        };
        /** @enum {string} */
        WhyWord: "ended" | "running" | "booked" | "stopped" | "held" | "after_jobs" | "after_task" | "steps" | "no_workers" | "fits_nowhere" | "paused" | "quota" | "limit" | "licence_busy" | "probing" | "max_running" | "together" | "parked" | "full" | "behind" | "turn" | "not_target" | "executor" | "other_queues" | "attribute" | "too_small" | "suspect" | "draining" | "left_out" | "saturated" | "low_space" | "worker_limit" | "busy" | "foreign" | "reserved" | "held_by_rule" | "nothing_waits" | "others_preferred" | "held_back" | "fits_none" | "preferred" | "other";
        /** @description Means of one quantity; null where nothing was measured in that time. `completed` is a count in each. */
        WindowMeans: {
            /**
             * Format: double
             * @description Over the last hour.
             */
            w1h?: number | null;
            /**
             * Format: double
             * @description Over the last 24 hours.
             */
            w24h?: number | null;
            /**
             * Format: double
             * @description Over the last five minutes.
             */
            w5m?: number | null;
        };
        /** @description A machine with its agent. */
        Worker: {
            /** @description Its attributes; a tag without a value has none here. */
            attributes: {
                [key: string]: string[];
            };
            /** @description The amounts that are booked on it. */
            booked: components["schemas"]["Resources"];
            /** @description Number of keys in its caches; absent if it has not reported them. */
            cache_keys?: number | null;
            /** @description The amounts that it declares. */
            capacity: components["schemas"]["Resources"];
            /** @description Whether it is connected now. */
            connected?: boolean | null;
            /**
             * Format: double
             * @description Speed of one of its cores by which workers are compared: its tag `core_score`, else what it measured. 1000 is
             *     the reference core; absent if it is unknown.
             */
            core_score?: number | null;
            /**
             * Format: int64
             * @description The number of its admission: grows each time its earlier bookings are fenced off.
             */
            epoch: number;
            /**
             * Format: int64
             * @description When it was last heard from; absent for a worker without heartbeats, and if that was before the server started.
             */
            heard_ms?: number | null;
            /**
             * Format: int64
             * @description Id of the worker, unique on the farm.
             */
            id: number;
            /**
             * Format: int64
             * @description When its lease runs out; absent without a lease.
             */
            lease_until_ms?: number | null;
            load?: components["schemas"]["Load"] | null;
            /** @description The worker's name, unique on the farm. */
            name: string;
            /** @description Why it is drained, as the operator noted; absent without a note. */
            note?: string | null;
            /** @description Number of prefetched tasks, which wait there for room. */
            queued: number;
            /** @description Number of tasks that hold a part of it. */
            running: number;
            /** @description Whether it gets new work. */
            state: components["schemas"]["WorkerState"];
            /** @description The first 1000 of the tasks that hold a part of it; only if one worker is requested. */
            tasks?: string[] | null;
            /** @description Whether that is soon: in the last tenth of the token's life, a week at most. */
            token_ends_soon?: boolean;
            /**
             * Format: int64
             * @description When the token with which it is connected expires; absent if it is not connected or the token has no end.
             */
            token_expires_ms?: number | null;
            /** @description Its agent's version; absent while it is not connected. */
            version?: string | null;
        };
        /** @description Number of workers by state. */
        WorkerCounts: {
            /** @description An operator drained them. */
            draining: number;
            /** @description Of those online: left out for a while, because tasks kept failing there. */
            left_out: number;
            /** @description Their lease ran out, and their tasks run elsewhere. */
            lost: number;
            /** @description Of those online: a directory has too little free space. */
            low_space: number;
            /** @description Up: they get work unless something below says otherwise. */
            online: number;
            /** @description Of those online: held by pressure. */
            pressed: number;
            /** @description Not heard from: they get no new work. */
            suspect: number;
            /** @description All that are not forgotten. */
            total: number;
            /**
             * @description Of those online with room: a rule vetoes what waits and would fit there, such as for the load of other programs. At
             *     most 64 are looked at.
             */
            vetoed?: number;
        };
        /** @description A worker connected, disconnected, or changed its state. */
        WorkerEvent: {
            /** @description The event, in a word. */
            what: string;
            /** @description Name of the worker, unique on the farm. */
            worker: string;
        };
        /** @description The outcomes of the attempts on a worker. */
        WorkerRecord: {
            /**
             * Format: int64
             * @description Attempts on it that failed.
             */
            failed: number;
            /**
             * Format: int64
             * @description Attempts on it that ended.
             */
            tasks: number;
            /** @description Name of the worker, unique on the farm. */
            worker: string;
        };
        /** @description A worker over time, oldest first, one number for each step; null is unknown. */
        WorkerSeries: {
            /** @description Cpus that are booked, in steps of a 250th of what it has today. */
            busy_cpus: (number | null)[];
            /** @description Whole percent in use of the file system of the cache directory that has least room. */
            cache_used?: (number | null)[];
            /** @description Whole percent of the time in which some process waited for a cpu. */
            cpu_pressure: (number | null)[];
            /**
             * Format: int64
             * @description When the last step ends.
             */
            end_ms: number;
            /** @description The same for input and output. */
            io_pressure: (number | null)[];
            /** @description The load by which workers are compared, at most 5. */
            load: (number | null)[];
            /** @description The same for memory. */
            memory_pressure: (number | null)[];
            /** @description What all links of its machine receive and send together, in Mbit/s, within a fortieth. */
            network_mbit_s?: (number | null)[];
            /**
             * Format: int64
             * @description Milliseconds of a step.
             */
            step_ms: number;
        };
        /**
         * @description Whether a worker gets new work.
         * @enum {string}
         */
        WorkerState: "up" | "draining" | "suspect" | "expired" | "forgotten";
        /** @description Why a worker gets no work, or that it does. */
        WorkerWhy: {
            /**
             * Format: double
             * @description Cpus booked on it.
             */
            booked_cpus: number;
            /**
             * Format: double
             * @description Cpus that it declares.
             */
            cpus: number;
            /** @description Why it is in quarantine. */
            left_out_for?: string | null;
            /**
             * Format: int64
             * @description Until when it is in quarantine; absent if it is not.
             */
            left_out_until_ms?: number | null;
            /**
             * Format: double
             * @description Its load with one more task of one cpu; absent for a worker without cpus.
             */
            load?: number | null;
            /** @description The last tasks for which it was scored and another worker won. */
            lost?: components["schemas"]["LostTask"][];
            /** @description The reason as a sentence for people. */
            message: string;
            /** @description Percent of the time with stalls, mean of ten seconds; null is unknown. */
            pressure: components["schemas"]["Percents"];
            /** @description False if pressure is shown but ignored. */
            pressure_counts: boolean;
            /** @description The reason in one word, for programs. */
            reason: components["schemas"]["WhyWord"];
            reserved?: components["schemas"]["ReservedFor"] | null;
            /** @description Tasks that hold a part of it. */
            running: number;
            /**
             * @description The pressures for which it gets no work now: `cpu`, `memory`, `io`; and `network`, for which it gets no
             *     network-bound work.
             */
            saturated?: string[];
            /** @description Whether it gets new work. */
            state: components["schemas"]["WorkerState"];
            /**
             * @description A few of the waiting steps whose turn comes first, each with the reason why it is not on the worker; those
             *     nearest to a start first.
             */
            steps?: components["schemas"]["PassedStep"][];
            /** @description Percents of pressure from which it gets no work. */
            thresholds: components["schemas"]["Percents"];
            /** @description Queues with ready tasks that may start. */
            waiting_queues: number;
            /** @description Name of the worker, unique on the farm. */
            worker: string;
        };
    };
    responses: {
        /** @description A parameter or the body is malformed or breaks a rule */
        BadRequest: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The caller may not do it */
        Forbidden: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description A defect of the server; its log says more */
        Internal: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description What the path names does not exist */
        NotFound: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is larger than the server takes */
        TooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The token is missing or not valid */
        Unauthorized: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The server is ending, too many requests wait, or the store is full or unreachable: try again */
        Unavailable: {
            headers: {
                /** @description Seconds to wait before the next try */
                "retry-after"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
