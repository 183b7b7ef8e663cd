//! The XML of a job spec becomes a `Spec`.

use super::*;
use crate::frames;
use crate::names::{self, width};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::HashSet;
use std::str::FromStr;

/// Reads a job spec, and refuses one that the tables cannot hold.
pub fn parse(text: &str) -> Result<Spec, SpecError> {
    if text.len() > SPEC_BYTES_MAX {
        return Err(SpecError::Long(text.len()));
    }
    // Stock clients name a document type, so that one is allowed. Without a declaration of an entity there
    // is nothing to expand. The parser reads no other file.
    if text.contains("<!ENTITY") {
        return Err(SpecError::Entity);
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text.trim_start(), options)?;
    let root = document.root_element();
    let show = names::plain("show", &required(root, "show")?, 1, width::SHOW)?;
    let shot = names::conformed("shot", &required(root, "shot")?, width::SHOT)?;
    let user = names::plain("user", &required(root, "user")?, 1, width::USER)?;
    let uid = number::<i32>(root, "uid", "user's number")?;
    if user == "root" || uid == Some(0) {
        return Err(SpecError::Root);
    }
    if uid.is_some_and(|uid| uid < 0) {
        return Err(value(root, "user's number", "a negative number"));
    }
    let facility = match child(root, "facility") {
        Some(name) => Some(names::plain("facility", &name.to_ascii_lowercase(), 1, width::FACILITY)?),
        None => None,
    };
    let email = child(root, "email");
    bounded(root, "email", email.as_deref().unwrap_or(""), 256)?;
    let mut spec = Spec { facility, show, shot, user, uid, email, jobs: Vec::new(), depends: Vec::new() };
    let jobs = elements(root, "job", JOBS_MAX)?;
    let mut frames_left = frames::FRAMES_MAX;
    for tag in jobs {
        let job = job(tag, &spec, &mut frames_left)?;
        spec.jobs.push(job);
    }
    for tag in nested(root, "depends", "depend", DEPENDS_MAX)? {
        spec.depends.push(depend(tag, &spec)?);
    }
    Ok(spec)
}

fn job(tag: Node, spec: &Spec, frames_left: &mut usize) -> Result<JobSpec, SpecError> {
    let name = names::job(&spec.show, &spec.shot, &spec.user, attribute(tag, "name")?)?;
    let mut job = JobSpec {
        paused: flag(tag, "paused").unwrap_or(false),
        auto_eat: flag(tag, "autoeat").unwrap_or(false),
        priority: number(tag, "priority", "priority")?,
        retries_max: number::<i32>(tag, "maxretries", "number of retries")?.map(|retries| retries.max(0)),
        cores_max: match number::<i32>(tag, "maxcores", "number of cores")? {
            Some(-1) => Some(-1),
            Some(cores) => {
                let cores = cores.checked_mul(100);
                Some(cores.ok_or_else(|| value(tag, "number of cores", "more than the database holds"))?)
            }
            None => None,
        },
        gpus_max: number(tag, "maxgpus", "number of gpus")?,
        os: child(tag, "os"),
        env: variables(tag)?,
        layers: Vec::new(),
        name,
    };
    bounded(tag, "operating system", job.os.as_deref().unwrap_or(""), 12)?;
    let mut known = HashSet::new();
    for tag in nested(tag, "layers", "layer", LAYERS_MAX)? {
        let layer = layer(tag)?;
        if !known.insert(layer.name.clone()) {
            return Err(SpecError::Twice { job: job.name, layer: layer.name });
        }
        // The bound is for the whole document. Otherwise many small jobs would pass it together.
        let Some(left) = frames_left.checked_sub(layer.frames.len()) else {
            return Err(SpecError::Many { place: place(tag), what: "frames", max: frames::FRAMES_MAX });
        };
        *frames_left = left;
        job.layers.push(layer);
    }
    if job.layers.is_empty() {
        return Err(SpecError::Missing { place: place(tag), what: "layer" });
    }
    Ok(job)
}

fn layer(tag: Node) -> Result<LayerSpec, SpecError> {
    let kind = attribute(tag, "type")?.to_ascii_uppercase();
    let kind = LayerType::from_str_name(&kind).ok_or_else(|| value(tag, "type", &kind))?;
    let (command, range) = (required(tag, "cmd")?, required(tag, "range")?);
    bounded(tag, "command", &command, TEXT_BYTES_MAX)?;
    bounded(tag, "range", &range, TEXT_BYTES_MAX)?;
    let chunk_size = number::<u32>(tag, "chunk", "chunk size")?;
    let chunk_size = chunk_size.ok_or_else(|| SpecError::Missing { place: place(tag), what: "chunk" })?;
    if chunk_size == 0 {
        return Err(value(tag, "chunk size", "0"));
    }
    let cores_min = cores(tag)?;
    // Less than a whole core cannot be several threads, whatever the document says.
    let part = cores_min.is_some_and(|cores| (1..100).contains(&cores));
    let gpu_memory = child(tag, "gpu_memory").or_else(|| child(tag, "gpu"));
    Ok(LayerSpec {
        name: names::conformed("layer name", attribute(tag, "name")?, width::LAYER)?,
        kind,
        frames: frames::chunk_starts(&range, chunk_size as usize)?,
        command,
        range,
        chunk_size,
        cores_min,
        threadable: if part { Some(false) } else { flag(tag, "threadable") },
        memory_kib: match child(tag, "memory") {
            Some(text) => {
                Some(memory(tag, &text)?.clamp(*MEMORY_RESERVED_KIB.start(), *MEMORY_RESERVED_KIB.end()))
            }
            None => None,
        },
        gpus_min: number(tag, "gpus", "number of gpus")?,
        gpu_memory_kib: match gpu_memory {
            Some(text) => Some(memory(tag, &text)?),
            None => None,
        },
        timeout_min: number(tag, "timeout", "timeout")?,
        timeout_llu_min: number(tag, "timeout_llu", "timeout")?,
        tags: tags(tag)?,
        limits: list(tag, "limits", "limit", width::JOB)?,
        services: list(tag, "services", "service", 128)?,
        env: variables(tag)?,
        outputs: list(tag, "outputs", "output", TEXT_BYTES_MAX)?,
    })
}

/// Hundredths of cores: a number with a point is cores, one without is hundredths already.
fn cores(tag: Node) -> Result<Option<i32>, SpecError> {
    let Some(text) = child(tag, "cores") else { return Ok(None) };
    let refused = || value(tag, "number of cores", &text);
    let hundredths = if text.contains('.') {
        let cores: f64 = text.parse().map_err(|_| refused())?;
        if !cores.is_finite() || cores.abs() > 1e6 {
            return Err(refused());
        }
        (cores * 100.0).round() as i32
    } else {
        text.parse().map_err(|_| refused())?
    };
    // As in OpenCue, too few cores become the default of one, and too many become the most.
    let (least, most) = (*CORES_RESERVED.start(), *CORES_RESERVED.end());
    Ok(Some(if hundredths > 0 && hundredths < least { 100 } else { hundredths.min(most) }))
}

/// KiB of `512m`, `1.5g`, or a number of GiB.
fn memory(tag: Node, text: &str) -> Result<i64, SpecError> {
    let lower = text.to_ascii_lowercase();
    let (digits, unit_kib) = match lower.find(['m', 'g']) {
        Some(at) if lower[at..].starts_with('m') => (&lower[..at], 1024.0),
        Some(at) => (&lower[..at], 1024.0 * 1024.0),
        None => (lower.as_str(), 1024.0 * 1024.0),
    };
    let amount: f64 = digits.trim().parse().map_err(|_| value(tag, "amount of memory", text))?;
    if !(0.0..=1e9).contains(&amount) {
        return Err(value(tag, "amount of memory", text));
    }
    Ok((amount * unit_kib) as i64)
}

fn tags(tag: Node) -> Result<Option<Vec<String>>, SpecError> {
    let Some(text) = child(tag, "tags") else { return Ok(None) };
    bounded(tag, "list of tags", &text, TEXT_BYTES_MAX)?;
    let mut tags: Vec<String> = Vec::new();
    for one in text.replace(' ', "").split('|').filter(|one| !one.is_empty()) {
        let one = names::plain("tag", one, 3, width::TAG)?;
        if !tags.contains(&one) {
            tags.push(one);
        }
        if tags.len() > LIST_MAX {
            return Err(SpecError::Many { place: place(tag), what: "tags", max: LIST_MAX });
        }
    }
    Ok(if tags.is_empty() { None } else { Some(tags) })
}

fn depend(tag: Node, spec: &Spec) -> Result<DependSpec, SpecError> {
    let text = attribute(tag, "type")?.to_ascii_uppercase();
    let kind = DependType::from_str_name(&text).ok_or_else(|| value(tag, "type", &text))?;
    let from = depend_end(tag, spec, ["depjob", "deplayer", "depframe"])?;
    let on = depend_end(tag, spec, ["onjob", "onlayer", "onframe"])?;
    use DependType::*;
    let from_layer = matches!(
        kind,
        LayerOnJob | LayerOnLayer | LayerOnFrame | LayerOnSimFrame | FrameByFrame | PreviousFrame
    );
    let on_layer = matches!(kind, JobOnLayer | LayerOnLayer | FrameOnLayer | FrameByFrame | PreviousFrame);
    let from_frame = matches!(kind, FrameOnJob | FrameOnLayer | FrameOnFrame);
    let on_frame = matches!(kind, JobOnFrame | LayerOnFrame | LayerOnSimFrame | FrameOnFrame);
    let needs = [
        (from_layer && from.layer.is_none(), "deplayer"),
        (on_layer && on.layer.is_none(), "onlayer"),
        (from_frame && from.frame.is_none(), "depframe"),
        (on_frame && on.frame.is_none(), "onframe"),
    ];
    if let Some((_, what)) = needs.into_iter().find(|(missing, _)| *missing) {
        return Err(SpecError::Missing { place: place(tag), what });
    }
    if from.frame.is_some() && from == on {
        return Err(value(tag, "dependency", "a frame on itself"));
    }
    let any_frame = kind == LayerOnLayer && tag.attribute("anyframe").is_some_and(is_true);
    Ok(DependSpec { kind, any_frame, from, on })
}

fn depend_end(tag: Node, spec: &Spec, fields: [&'static str; 3]) -> Result<DependEnd, SpecError> {
    let [job, layer, frame] = fields;
    Ok(DependEnd {
        job: names::job(&spec.show, &spec.shot, &spec.user, &required(tag, job)?)?,
        layer: match child(tag, layer) {
            Some(name) => Some(names::conformed("layer name", &name, width::LAYER)?),
            None => None,
        },
        frame: match child(tag, frame) {
            Some(name) => Some(names::frame(&name)?),
            None => None,
        },
    })
}

/// The variables of all `env` elements. The last value of a name counts.
fn variables(tag: Node) -> Result<Vec<(String, String)>, SpecError> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for key in nested(tag, "env", "key", VARIABLES_MAX)? {
        let Some(name) = key.attribute("name") else { continue };
        let text = text(key);
        bounded(key, "name", name, VARIABLE_BYTES_MAX)?;
        bounded(key, "value", &text, VARIABLE_BYTES_MAX)?;
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), text));
    }
    Ok(variables)
}

/// Distinct texts of a list of elements, in order.
fn list(tag: Node, outer: &str, inner: &'static str, max: usize) -> Result<Vec<String>, SpecError> {
    let mut texts = Vec::new();
    for one in nested(tag, outer, inner, LIST_MAX)? {
        let text = text(one);
        bounded(one, inner, &text, max)?;
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    Ok(texts)
}

fn nested<'a>(
    tag: Node<'a, 'a>,
    outer: &str,
    inner: &'static str,
    max: usize,
) -> Result<Vec<Node<'a, 'a>>, SpecError> {
    let outers = tag.children().filter(|node| node.has_tag_name(outer));
    let inners = outers.flat_map(|node| node.children().filter(|node| node.has_tag_name(inner)));
    at_most(tag, inners, inner, max)
}

fn elements<'a>(tag: Node<'a, 'a>, name: &'static str, max: usize) -> Result<Vec<Node<'a, 'a>>, SpecError> {
    at_most(tag, tag.children().filter(|node| node.has_tag_name(name)), name, max)
}

fn at_most<'a>(
    tag: Node,
    nodes: impl Iterator<Item = Node<'a, 'a>>,
    what: &'static str,
    max: usize,
) -> Result<Vec<Node<'a, 'a>>, SpecError> {
    let nodes: Vec<_> = nodes.take(max + 1).collect();
    if nodes.len() > max { Err(SpecError::Many { place: place(tag), what, max }) } else { Ok(nodes) }
}

/// The trimmed text of a child. `None` where the child is missing or empty.
fn child(tag: Node, name: &str) -> Option<String> {
    let text = text(tag.children().find(|node| node.has_tag_name(name))?);
    if text.is_empty() { None } else { Some(text) }
}

fn text(node: Node) -> String {
    let parts: String = node.children().filter(Node::is_text).filter_map(|part| part.text()).collect();
    parts.trim().to_owned()
}

fn required(tag: Node, name: &'static str) -> Result<String, SpecError> {
    child(tag, name).ok_or_else(|| SpecError::Missing { place: place(tag), what: name })
}

fn attribute<'a>(tag: Node<'a, '_>, name: &'static str) -> Result<&'a str, SpecError> {
    tag.attribute(name).ok_or_else(|| SpecError::Missing { place: place(tag), what: name })
}

fn number<N: FromStr>(tag: Node, name: &str, what: &'static str) -> Result<Option<N>, SpecError> {
    let Some(text) = child(tag, name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| value(tag, what, &text))
}

fn flag(tag: Node, name: &str) -> Option<bool> {
    child(tag, name).map(|text| is_true(&text))
}

/// OpenCue's words for yes. All others are no.
fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "true" | "yes" | "1" | "on")
}

fn bounded(tag: Node, what: &'static str, text: &str, max: usize) -> Result<(), SpecError> {
    // PostgreSQL's text holds no NUL; XML has none either.
    if text.len() > max { Err(value(tag, what, text)) } else { Ok(()) }
}

fn value(tag: Node, what: &'static str, value: &str) -> SpecError {
    SpecError::Value { place: place(tag), what, value: value.chars().take(60).collect() }
}

/// The element and its name, for messages.
fn place(tag: Node) -> String {
    match tag.attribute("name") {
        Some(name) => format!("{} '{}'", tag.tag_name().name(), name.chars().take(60).collect::<String>()),
        None => tag.tag_name().name().to_owned(),
    }
}
