//! The tools: their names, and what a client is told of them.
//!
//! The schemas are written by hand, because descriptions for a model say more than those of a type. Tests hold them
//! against what the arguments are read into, and against real answers.

use crate::commands::mcp::answer::fields_of;
use serde_json::{Map, Value, json};

/// What a client may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// Submits a job, and returns its id.
    Submit,
    /// Says what a submission would do.
    Preview,
    /// Waits for the end of a job.
    Wait,
    /// Explains why a task does not run.
    Why,
    /// Reads the output of a task.
    Logs,
    /// Ends a job, or tasks of it.
    Cancel,
    /// Lists jobs, the newest first.
    List,
    /// Lists the tasks of a job.
    Tasks,
    /// Shows a job in detail.
    Show,
    /// Says how busy the farm and its workers are.
    Workers,
}

/// What a tool changes, as clients ask people before they call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    /// It changes nothing anywhere.
    Reads,
    /// It runs any command.
    Runs,
    /// It ends work; a second time it changes nothing more.
    Ends,
}

impl Tool {
    /// All tools, in the order in which they are listed.
    pub const ALL: [Tool; 10] = [
        Tool::Submit,
        Tool::Preview,
        Tool::Wait,
        Tool::Why,
        Tool::Logs,
        Tool::Cancel,
        Tool::List,
        Tool::Tasks,
        Tool::Show,
        Tool::Workers,
    ];

    /// The name by which it is called.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Submit => "submit",
            Tool::Preview => "preview",
            Tool::Wait => "wait",
            Tool::Why => "why",
            Tool::Logs => "logs",
            Tool::Cancel => "cancel",
            Tool::List => "list",
            Tool::Tasks => "tasks",
            Tool::Show => "show",
            Tool::Workers => "workers",
        }
    }

    /// The tool of this name.
    pub fn named(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// What a client is told of it.
    pub fn definition(self) -> Value {
        let (title, description) = self.told();
        let (is_read, is_repeatable) = match self.harm() {
            Harm::Reads => (true, true),
            Harm::Runs => (false, false),
            Harm::Ends => (false, true),
        };
        json!({
            "name": self.name(),
            "title": title,
            "description": description,
            "inputSchema": self.input(),
            "outputSchema": self.output(),
            "annotations": {
                "title": title,
                "readOnlyHint": is_read,
                "destructiveHint": !is_read,
                "idempotentHint": is_repeatable,
                "openWorldHint": self.harm() == Harm::Runs,
            },
        })
    }

    fn harm(self) -> Harm {
        match self {
            Tool::Submit => Harm::Runs,
            Tool::Cancel => Harm::Ends,
            Tool::Preview
            | Tool::Wait
            | Tool::Why
            | Tool::Logs
            | Tool::List
            | Tool::Tasks
            | Tool::Show
            | Tool::Workers => Harm::Reads,
        }
    }

    /// Its title and its description.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Tool::Submit => (
                "Submit a job",
                "Queue a command to run when there is room for it, and return the job's id at once. Use it for \
                 builds, tests and whatever else is heavy: the machine or farm is shared fairly, and memory is \
                 booked. Then call wait, and logs if it failed. Give either command or script.",
            ),
            Tool::Preview => (
                "Preview a submission",
                "Say what submit would do with the same arguments, and submit nothing: whether it would start now \
                 and where, or what it would wait for and until about when.",
            ),
            Tool::Wait => (
                "Wait for a job",
                "Wait until a job has ended, for a bounded time. Returns its state and exit code, and of failed tasks \
                 the reason and the last lines of standard error. If it has not ended, call it again.",
            ),
            Tool::Why => (
                "Explain a task",
                "Say why a task or job does not run and what would make it run, or how it failed.",
            ),
            Tool::Logs => (
                "Read output",
                "Read the last lines that a task wrote. Of a job with several tasks it reads the first one that \
                 failed, or else runs, or else succeeded.",
            ),
            Tool::Cancel => (
                "Cancel a job",
                "Cancel a job, or some of its tasks: those that run are killed, and the others never start.",
            ),
            Tool::List => ("List jobs", "List jobs, the newest first, page by page."),
            Tool::Tasks => ("List tasks", "List the tasks of a job in their order, page by page."),
            Tool::Show => {
                ("Show a job", "Show one job in detail: its steps, its counts, and why its tasks failed.")
            }
            Tool::Workers => (
                "Show the workers",
                "Say how busy the machine or farm is: workers, cpus, waiting tasks by reason, and what stands still.",
            ),
        }
    }

    /// The schema of its arguments.
    pub fn input(self) -> Value {
        match self {
            Tool::Submit | Tool::Preview => object(work_properties(), &[]),
            Tool::Wait => object(
                json!({
                    "job": job_property(),
                    "seconds": {
                        "type": "integer", "minimum": 0, "maximum": 3600, "default": 45,
                        "description": "How long to wait at most. Many clients give up after 60 s.",
                    },
                }),
                &["job"],
            ),
            Tool::Why => object(json!({"id": id_property()}), &["id"]),
            Tool::Logs => object(logs_properties(), &["id"]),
            Tool::Cancel => object(
                json!({
                    "job": {"type": "string", "description": "The job's number, such as 12."},
                    "tasks": {
                        "type": "string",
                        "description": "Only these of its tasks: 6, 3-9 or 1,4-6. Without it the whole job.",
                    },
                }),
                &["job"],
            ),
            Tool::List => object(list_properties(), &[]),
            Tool::Tasks => object(
                json!({
                    "job": job_property(),
                    "state": states_property(&[
                        "waiting", "ready", "booked", "running", "succeeded", "failed", "cancelled", "skipped",
                    ]),
                    "limit": limit_property(),
                    "cursor": cursor_property(),
                }),
                &["job"],
            ),
            Tool::Show => object(json!({"job": job_property()}), &["job"]),
            Tool::Workers => object(json!({}), &[]),
        }
    }

    /// The schema of its structured content. It names what a client can rely on; answers have more fields.
    fn output(self) -> Value {
        let texts = json!({"type": "array", "items": {"type": "string"}});
        let objects = json!({"type": "array", "items": {"type": "object"}});
        let (text, number, yes) =
            (json!({"type": "string"}), json!({"type": "integer"}), json!({"type": "boolean"}));
        let properties = match self {
            Tool::Submit => json!({"job": number, "tasks": number, "existing": yes, "queue_created": yes}),
            Tool::Preview => json!({"starting": number, "waiting": number, "queue": text, "steps": objects}),
            Tool::Wait => json!({"id": number, "state": text, "ended": yes, "counts": {"type": "object"}}),
            Tool::Why => json!({"task": text, "state": text, "reason": text, "message": text}),
            Tool::Logs => json!({"task": text, "cut": yes}),
            Tool::Cancel => json!({"id": number, "state": text}),
            Tool::List | Tool::Tasks => json!({"items": objects}),
            Tool::Show => {
                json!({"id": number, "state": text, "counts": {"type": "object"}, "steps": objects})
            }
            Tool::Workers => json!({
                "workers": {"type": "object"}, "cpus": {"type": "object"}, "tasks": {"type": "object"},
                "holds": texts, "items": objects,
            }),
        };
        let mut named = fields_of(properties);
        let required: Vec<String> = named.keys().cloned().collect();
        named.extend(self.optional_output());
        json!({"type": "object", "properties": named, "required": required})
    }

    /// What its structured content has only sometimes.
    fn optional_output(self) -> Map<String, Value> {
        let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
        let named = match self {
            Tool::Preview => json!({"existing": number}),
            Tool::Wait => json!({"exit_code": number, "failures": {"type": "object"}}),
            Tool::Why => {
                json!({"changes": {"type": "array"}, "turn": {"type": "object"}, "failure": {"type": "object"}})
            }
            Tool::Logs => json!({
                "stdout": text, "stderr": text, "stdout_bytes": number, "stderr_bytes": number,
            }),
            Tool::List | Tool::Tasks => json!({"next": text}),
            Tool::Show => json!({"failures": {"type": "object"}}),
            Tool::Submit | Tool::Cancel | Tool::Workers => json!({}),
        };
        fields_of(named)
    }
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn job_property() -> Value {
    json!({"type": "string", "description": "The job's number, such as 12, or last for the one submitted last."})
}

fn id_property() -> Value {
    json!({
        "type": "string",
        "description": "A task such as 12.3, or a job such as 12, or last for the job submitted last.",
    })
}

fn limit_property() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": "Entries of a page."})
}

fn cursor_property() -> Value {
    json!({"type": "string", "description": "What the page before had as next."})
}

fn states_property(words: &[&str]) -> Value {
    json!({
        "type": "array", "items": {"type": "string", "enum": words}, "description": "Only those in these states.",
    })
}

fn list_properties() -> Value {
    json!({
        "state": states_property(&["pending", "running", "held", "succeeded", "failed", "cancelled"]),
        "user": {"type": "string", "description": "Only jobs of this user."},
        "queue": {"type": "string", "description": "Only jobs of this queue."},
        "name": {"type": "string", "description": "Only jobs whose name contains this text."},
        "limit": limit_property(),
        "cursor": cursor_property(),
    })
}

fn logs_properties() -> Value {
    json!({
        "id": id_property(),
        "lines": {
            "type": "integer", "minimum": 1, "maximum": 1000, "default": 100,
            "description": "The number of last lines of each stream.",
        },
        "stream": {"type": "string", "enum": ["both", "stdout", "stderr"], "default": "both"},
        "attempt": {"type": "integer", "minimum": 1, "description": "This attempt instead of the last one."},
    })
}

/// The properties of `submit` and `preview`.
fn work_properties() -> Value {
    let texts =
        |description: &str| json!({"type": "array", "items": {"type": "string"}, "description": description});
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "command": texts(
            "The program and its arguments, without a shell. {} stands for the value of the task, if it has one."
        ),
        "script": text("Instead of command: a script for sh -c. A value of each is $1, unless the script has {}."),
        "cwd": text("The directory to run in, absolute, or relative to that of this server process, the default."),
        "name": text("A name for the job, for people."),
        "cpus": text(
            "Cpus of each task: 2, a range such as 2-16, or auto. Leave it out for make, ninja and cargo, which then \
             share the idle cpus with other builds; give them no -j either. For others it is 1."
        ),
        "jobserver": {
            "type": "boolean",
            "description": "Whether tasks find a GNU make jobserver. By itself it is there for builds without cpus; \
                            true is for scripts that run such builds.",
        },
        "memory": text(
            "Memory of each task, and its limit: 500M or 2GiB. Without it there is no limit and none is booked."
        ),
        "gpus": {"type": "integer", "minimum": 0, "description": "Gpus of each task."},
        "time_limit": text("Kill a task that runs longer: 90s, 1h30m, or seconds."),
        "each": texts("Run the command once for each of these values."),
        "array": text("Run it once for each number: 1-100, or 1,3,7-9. {} is the number."),
        "max_running": {
            "type": "integer", "minimum": 1, "description": "How many of its tasks may run at a time.",
        },
        "retries": {"type": "integer", "minimum": 0, "description": "Run a failed task again up to so often."},
        "queue": text("The queue; without it your own."),
        "priority": {"type": "integer", "description": "The priority inside the queue; higher goes first."},
        "env": {
            "type": "object", "additionalProperties": {"type": "string"},
            "description": "Variables to set. On this machine the tasks have those of this process, too.",
        },
        "after": texts("Start when these jobs have succeeded, by number."),
        "after_any": texts("Start when these jobs have ended, whatever way."),
        "tags": texts("Tags that the worker must have: key, key=value or key=a|b."),
        "limits": texts("Hold one of each of these limits, such as a licence, while a task runs."),
        "key": text("A key of your own: a second submission with it returns the first job. Use it to try again."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_found_by_its_name_and_described() {
        for tool in Tool::ALL {
            assert_eq!(Tool::named(tool.name()), Some(tool));
            let told = tool.definition();
            assert!(told["description"].as_str().unwrap().len() > 20, "{told}");
            for schema in ["inputSchema", "outputSchema"] {
                let (properties, required) = (&told[schema]["properties"], &told[schema]["required"]);
                assert_eq!(told[schema]["type"], "object", "{told}");
                let named = properties.as_object().unwrap();
                let missing = required
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|name| !named.contains_key(name.as_str().unwrap()));
                assert_eq!(missing, None, "{told}");
            }
            let hints = &told["annotations"];
            assert!(hints["readOnlyHint"] != hints["destructiveHint"], "{told}");
        }
        assert_eq!(Tool::named("Submit"), None);
    }

    #[test]
    fn what_runs_or_ends_work_does_not_pass_for_reading() {
        let changing =
            Tool::ALL.into_iter().filter(|tool| tool.definition()["annotations"]["readOnlyHint"] == false);
        assert_eq!(changing.collect::<Vec<_>>(), [Tool::Submit, Tool::Cancel]);
    }
}
