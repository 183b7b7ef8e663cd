//! What the specification allows and the model's library refuses, put so that the library takes it. The reports for
//! its maintainers are in `docs/dev/upstream.md`. What a newer version takes is to be removed here.
//!
//! - The elements of a list of whole numbers may be references to parameters. The library gets zeros first, and the
//!   values of the references when these are known.
//! - The name of a step may contain `{{`, which refers to nothing there. The library gets other characters.
//! - A number that a FLOAT parameter has in the template is spelt as the model in Python spells it. The library spells
//!   `3` as `3.0`, and `3.0` as `3` where it is a default.
//! - A parameter with the control of a file and without an object type is a file. The library takes it for a directory.

use crate::locate::Key;
use openjd_model::FormatString;
use serde_json::Value;
use windlass_api::{fill_references, references};

/// What stands for `{{` in names of steps: two characters, too, which Unicode keeps out of texts.
const HIDDEN: &str = "\u{FDD0}\u{FDD1}";

/// An element of a list of whole numbers that refers to parameters.
pub struct ReferringNumber {
    /// Its step, its parameter in the step's space, and its place in the list.
    place: (usize, usize, usize),
    text: String,
}

/// Changes the document of a template so that the library takes it. Returns the elements that [`fill_numbers`] fills
/// in.
pub fn put_right(document: &mut Value) -> Vec<ReferringNumber> {
    for definition in elements(document.get_mut("parameterDefinitions")) {
        name_object_type(definition);
        if definition["type"] == "FLOAT" {
            definition.get_mut("default").into_iter().for_each(spell);
        }
    }
    let mut numbers = Vec::new();
    for (n, step) in elements(document.get_mut("steps")).enumerate() {
        hide(step.get_mut("name"));
        elements(step.get_mut("dependencies")).for_each(|on| hide(on.get_mut("dependsOn")));
        for (m, definition) in elements(definitions(step)).enumerate() {
            let (is_whole, is_float) = match definition["type"].as_str() {
                Some("INT" | "CHUNK[INT]") => (true, false),
                kind => (false, kind == Some("FLOAT")),
            };
            for (i, element) in elements(definition.get_mut("range")).enumerate() {
                if is_float {
                    spell(element);
                } else if is_whole && let Some(text) = element.as_str().filter(|text| text.contains("{{")) {
                    numbers.push(ReferringNumber { place: (n, m, i), text: text.to_owned() });
                    *element = Value::from(0);
                }
            }
        }
    }
    numbers
}

/// Checks that the elements refer to parameters that there are.
///
/// # Errors
/// The path of the first one that does not, and the reason.
pub fn check_numbers(numbers: &[ReferringNumber], parameters: &[&str]) -> Result<(), (Vec<Key>, String)> {
    for number in numbers {
        if let Err(error) = FormatString::new(&number.text) {
            return Err((number.path(), error.message()));
        }
        let is_known = |name: &&str| {
            let parameter = name.strip_prefix("Param.").or_else(|| name.strip_prefix("RawParam."));
            parameter.is_some_and(|parameter| parameters.contains(&parameter))
        };
        if let Some(unknown) = references(&number.text).find(|name| !is_known(name)) {
            return Err((number.path(), format!("Undefined variable: '{unknown}'.")));
        }
    }
    Ok(())
}

/// Fills in the elements with the values of parameters.
///
/// # Errors
/// The path of the first one that is not a whole number, and the reason.
pub fn fill_numbers<'a>(
    document: &mut Value,
    numbers: &[ReferringNumber],
    value_of: impl Fn(&str) -> Option<&'a str>,
) -> Result<(), (Vec<Key>, String)> {
    for number in numbers {
        let text = fill_references(&number.text, |name| {
            let parameter = name.strip_prefix("Param.").or_else(|| name.strip_prefix("RawParam."))?;
            value_of(parameter).map(Into::into)
        });
        let Ok(value) = text.trim().parse::<i64>() else {
            let why = format!("'{}' is '{text}', which is not a whole number", number.text);
            return Err((number.path(), why));
        };
        let (step, parameter, element) = number.place;
        let definition = definitions(&mut document["steps"][step]).and_then(|all| all.get_mut(parameter));
        if let Some(definition) = definition {
            definition["range"][element] = value.into();
        }
    }
    Ok(())
}

impl ReferringNumber {
    fn path(&self) -> Vec<Key> {
        let (step, parameter, element) = self.place;
        let field = |name: &str| Key::Field(name.to_owned());
        vec![
            field("steps"),
            Key::Index(step),
            field("parameterSpace"),
            field("taskParameterDefinitions"),
            Key::Index(parameter),
            field("range"),
            Key::Index(element),
        ]
    }
}

/// The text with `{{` again where the library got other characters.
pub fn shown(text: &str) -> String {
    text.replace(HIDDEN, "{{")
}

fn hide(name: Option<&mut Value>) {
    if let Some(Value::String(name)) = name {
        *name = name.replace("{{", HIDDEN);
    }
}

/// Makes a number a text, which the library keeps as it is.
fn spell(value: &mut Value) {
    let Value::Number(number) = value else { return };
    let text = match number.as_f64() {
        Some(float) if number.is_f64() => float_text(float),
        _ => number.to_string(),
    };
    *value = Value::String(text);
}

/// A number as Python's `Decimal` spells it: `3.0`, `0.000001`, `1E-7`, `1.5E+16`.
fn float_text(float: f64) -> String {
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    if (-6..16).contains(&exponent) {
        return if float.fract() == 0.0 { format!("{float:.1}") } else { float.to_string() };
    }
    if exponent > 0 && decimals >= exponent { float.to_string() } else { format!("{digits}E{exponent:+}") }
}

fn name_object_type(definition: &mut Value) {
    let control = definition["userInterface"]["control"].as_str();
    let is_file = matches!(control, Some("CHOOSE_INPUT_FILE" | "CHOOSE_OUTPUT_FILE"));
    if is_file && definition["type"] == "PATH" && definition["objectType"].is_null() {
        definition["objectType"] = "FILE".into();
    }
}

/// The task parameters of a step.
fn definitions(step: &mut Value) -> Option<&mut Value> {
    step.get_mut("parameterSpace")?.get_mut("taskParameterDefinitions")
}

/// The elements of a list; none of anything else.
fn elements(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}
