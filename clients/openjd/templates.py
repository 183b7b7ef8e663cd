"""Templates of Open Job Description, by families. The same ones are made in each run."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = Any
Document = dict[str, Any]


@dataclass
class Case:
    """A template, and the values of its parameters."""

    name: str
    template: Document
    values: dict[str, str] = field(default_factory=dict)


def template(steps: list[Document], **fields: Json) -> Document:
    """A template with these steps and fields."""
    return {"specificationVersion": "jobtemplate-2023-09", "name": "T", **fields, "steps": steps}


def step(name: str = "S", args: list[Json] | None = None, **fields: Json) -> Document:
    """A step that runs `echo`."""
    return {
        "name": name,
        **fields,
        "script": {"actions": {"onRun": {"command": "echo", "args": args or ["x"]}}},
    }


def with_space(parameters: list[Document], combination: str | None = None, **fields: Json) -> Document:
    """A template with one step that has these task parameters."""
    space: Document = {"taskParameterDefinitions": parameters}
    if combination is not None:
        space["combination"] = combination
    return template([step(parameterSpace=space)], **fields)


def chunked(values: Json, size: Json, constraint: str, **more: Json) -> Document:
    """A template whose tasks are in chunks of `Frame`, and print them."""
    chunks = {"defaultTaskCount": size, "rangeConstraint": constraint, **more}
    space = {
        "taskParameterDefinitions": [
            {"name": "Frame", "type": "CHUNK[INT]", "range": values, "chunks": chunks}
        ]
    }
    return template(
        [step(args=["CHUNK:{{Task.Param.Frame}}"], parameterSpace=space)], extensions=["TASK_CHUNKING"]
    )


def number_ranges() -> Iterator[Case]:
    """Ranges and lists of numbers, and of texts."""
    expressions = [
        "1-10",
        "1 - 5",
        "1 - -1",
        "-1 - 1",
        "1-5:2",
        "10-15:2,1-5",
        "1-10:4",
        "1-10:4,10-15",
        "5",
        "-5--3",
        "5-1:-1",
        "5-1",
        "1-1",
        "1,2,3",
        "",
        "a",
        "1-",
        "1,,2",
        "1-5:0",
        "1-{{Param.N}}",
        "{{Param.N}}",
        "{{Param.Other}}",
        "{{Task.Param.X}}",
        "{{Param.N",
        "1-3,3",
        "9-7:-1,1-3",
    ]
    definitions = [{"name": "N", "type": "INT", "default": 4}]
    for n, text in enumerate(expressions):
        yield Case(
            f"range {n} {text}",
            with_space([{"name": "X", "type": "INT", "range": text}], parameterDefinitions=definitions),
        )
    lists: list[list[Json]] = [
        [1, 2, 3],
        ["1", "2"],
        [3, 1, 1],
        [1, "{{Param.N}}"],
        ["{{Param.N}}", "{{ RawParam.N }}1"],
        ["{{Param.Other}}"],
        ["{{Task.Param.X}}"],
        ["{{Param.N}}.5"],
        ["a"],
        [1.5],
        [True],
        [],
        list(range(1024)),
        list(range(1025)),
        ["{{Param.N"],
        [None],
        ["-{{Param.N}}"],
    ]
    for kind, (n, values) in itertools.product(["INT", "FLOAT", "STRING", "PATH"], enumerate(lists)):
        if kind in ("STRING", "PATH"):
            values = [str(value) if type(value) is int else value for value in values]
        parameter = {"name": "X", "type": kind, "range": values}
        yield Case(f"list {kind} {n}", with_space([parameter], parameterDefinitions=definitions))
    for n, values in enumerate(lists):
        yield Case(
            f"list CHUNK[INT] {n}", {**chunked(values, 2, "CONTIGUOUS"), "parameterDefinitions": definitions}
        )


def combinations() -> Iterator[Case]:
    """Products and associations, some of unequal lengths or of parameters that are not there."""
    parameters = [
        {"name": "A", "type": "INT", "range": "1-3"},
        {"name": "B", "type": "STRING", "range": ["x", "y", "z"]},
        {"name": "C", "type": "FLOAT", "range": [0.5, 1, "2"]},
        {"name": "D", "type": "INT", "range": [1, 2]},
    ]
    texts = [
        None,
        "A * B * C * D",
        "(A, B) * C * D",
        "(A, B, C) * D",
        "A * (B, C) * D",
        "(A, D) * B * C",
        "A * B",
        "A * B * C * D * A",
        "A * B * C * E",
        "(A, B",
        "A B",
        "",
        "(A) * (B, C) * D",
        "((A, B), C) * D",
        "(A * D, B) * C",
        "A,B,C,D",
    ]
    for n, text in enumerate(texts):
        yield Case(f"combination {n} {text}", with_space(parameters, text))


def chunks() -> Iterator[Case]:
    """Steps in chunks."""
    sizes: list[Json] = [1, 3, 5, 100, 0, -1, "2", "x", "{{Param.Size}}"]
    for size, constraint in itertools.product(sizes, ["CONTIGUOUS", "NONCONTIGUOUS", "CLOSE"]):
        document = {
            **chunked("1,10-12,18-50:2", size, constraint),
            "parameterDefinitions": [{"name": "Size", "type": "INT", "default": 4}],
        }
        yield Case(f"chunks of {size} {constraint}", document)
    for target in [0, 60, "30", -1, "x"]:
        yield Case(f"chunks of {target} s", chunked("1-20", 3, "CONTIGUOUS", targetRuntimeSeconds=target))
    yield Case("chunks without the extension", {**chunked("1-3", 1, "CONTIGUOUS"), "extensions": ["EXPR"]})
    frames = {
        "name": "F",
        "type": "CHUNK[INT]",
        "range": "1-10",
        "chunks": {"defaultTaskCount": 3, "rangeConstraint": "CONTIGUOUS"},
    }
    eyes = {"name": "Eye", "type": "STRING", "range": ["l", "r"]}
    fives = {"name": "G", "type": "INT", "range": "1-10"}
    extensions = ["TASK_CHUNKING"]
    for n, (others, text) in enumerate(
        [
            ([eyes], None),
            ([eyes], "F * Eye"),
            ([eyes], "Eye * F"),
            ([fives], "(F, G)"),
            ([{**frames, "name": "H"}], None),
        ]
    ):
        yield Case(f"chunks and others {n}", with_space([frames, *others], text, extensions=extensions))


def random_chunks(count: int) -> Iterator[Case]:
    """Chunks of random numbers."""
    rng = random.Random(7)
    for n in range(count):
        parts, first = [], rng.randint(-20, 5)
        for _ in range(rng.randint(1, 5)):
            last = first + rng.randint(0, 15)
            parts.append(f"{first}-{last}:{rng.randint(1, 3)}" if last > first else str(first))
            first = last + rng.randint(1, 4)
        constraint = rng.choice(["CONTIGUOUS", "NONCONTIGUOUS"])
        yield Case(
            f"random chunks {n} {','.join(parts)}", chunked(",".join(parts), rng.randint(1, 9), constraint)
        )


def job_parameters() -> Iterator[Case]:
    """Definitions of parameters, and values for them."""
    bounds: list[Document] = [
        {},
        {"default": 3},
        {"default": "3"},
        {"default": 9, "maxValue": 5},
        {"minValue": 2, "maxValue": 5},
        {"minValue": 5, "maxValue": 2},
        {"allowedValues": [1, 3]},
        {"allowedValues": [1, 3], "default": 2},
        {"allowedValues": []},
        {"allowedValues": ["1", 3], "default": 3},
    ]
    for kind, (n, bound), value in itertools.product(
        ["INT", "FLOAT"], enumerate(bounds), [None, "3", "7", "x", "2.5"]
    ):
        values = {} if value is None else {"P": value}
        definition = {"name": "P", "type": kind, **bound}
        yield Case(
            f"parameter {kind} {n} {value}",
            template([step(args=["{{Param.P}}"])], parameterDefinitions=[definition]),
            values,
        )
    lengths: list[Document] = [
        {},
        {"default": "ab"},
        {"minLength": 2, "maxLength": 3},
        {"minLength": 3, "maxLength": 2},
        {"allowedValues": ["ab", "c"]},
        {"default": "abcd", "maxLength": 3},
        {"minLength": -1},
    ]
    for kind, (n, bound), value in itertools.product(
        ["STRING", "PATH"], enumerate(lengths), [None, "ab", "abcd", ""]
    ):
        values = {} if value is None else {"P": value}
        definition = {"name": "P", "type": kind, **bound}
        # What a relative path is relative to is not a question of the template.
        if kind == "PATH" and (value is not None or "default" in bound):
            continue
        yield Case(
            f"parameter {kind} {n} {value}",
            template([step(args=["{{Param.P}}"])], parameterDefinitions=[definition]),
            values,
        )
    yield Case("an unknown parameter", template([step()]), {"Nobody": "1"})
    yield Case(
        "two parameters of one name",
        template([step()], parameterDefinitions=[{"name": "P", "type": "INT", "default": 1}] * 2),
    )
    yield Case("no parameters", template([step()], parameterDefinitions=[]))
    for count in [50, 51]:
        many = [{"name": f"P{n}", "type": "INT", "default": 1} for n in range(count)]
        yield Case(f"{count} parameters", template([step()], parameterDefinitions=many))


def controls() -> Iterator[Case]:
    """Controls of user interfaces."""
    of_paths = [
        "CHOOSE_INPUT_FILE",
        "CHOOSE_OUTPUT_FILE",
        "CHOOSE_DIRECTORY",
        "DROPDOWN_LIST",
        "HIDDEN",
        "SPIN_BOX",
    ]
    filters = [{"label": "All", "patterns": ["*.*"]}]
    for control, kind, has_filters in itertools.product(of_paths, [None, "FILE", "DIRECTORY"], [False, True]):
        interface: Document = {"control": control, **({"fileFilters": filters} if has_filters else {})}
        definition: Document = {"name": "P", "type": "PATH", "default": "a", "userInterface": interface}
        if kind is not None:
            definition["objectType"] = kind
        yield Case(
            f"control {control} {kind} {has_filters}", template([step()], parameterDefinitions=[definition])
        )
    others = ["LINE_EDIT", "MULTILINE_EDIT", "DROPDOWN_LIST", "CHECK_BOX", "HIDDEN", "SPIN_BOX"]
    for kind, control, allowed in itertools.product(
        ["STRING", "INT"], others, [None, ["1", "0"], ["1", "2"]]
    ):
        definition = {"name": "P", "type": kind, "default": "1", "userInterface": {"control": control}}
        if allowed is not None:
            definition["allowedValues"] = allowed
        yield Case(
            f"control {kind} {control} {allowed}", template([step()], parameterDefinitions=[definition])
        )


def names() -> Iterator[Case]:
    """Names of jobs, steps and parameters, and dependencies."""
    for n, name in enumerate(
        ["x" * 64, "x" * 65, "", "a\tb", "a {{ b", "{{Param.X}}", "{{{", "}}", "ä é", "x/y", " "]
    ):
        yield Case(f"step {n}", template([step(name), step("J", dependencies=[{"dependsOn": name}])]))
        yield Case(f"job {n}", template([step()], name=name))
        if n < 6:
            yield Case(
                f"name of a parameter {n}",
                template([step()], parameterDefinitions=[{"name": name, "type": "INT", "default": 1}]),
            )
    yield Case("two steps of one name", template([step(), step()]))
    yield Case("no steps", template([]))
    yield Case("a step after itself", template([step(dependencies=[{"dependsOn": "S"}])]))
    yield Case("a step after none", template([step(dependencies=[{"dependsOn": "N"}])]))
    yield Case(
        "a step twice after another", template([step(), step("J", dependencies=[{"dependsOn": "S"}] * 2)])
    )
    yield Case(
        "steps after each other",
        template(
            [step("A", dependencies=[{"dependsOn": "B"}]), step("B", dependencies=[{"dependsOn": "A"}])]
        ),
    )
    yield Case("a later step first", template([step("A", dependencies=[{"dependsOn": "B"}]), step("B")]))


def requirements() -> Iterator[Case]:
    """Requirements of hosts."""
    amounts: list[Document] = [
        {"name": "amount.worker.vcpu", "min": 1},
        {"name": "amount.worker.vcpu", "min": 2, "max": 1},
        {"name": "amount.worker.vcpu", "max": 4},
        {"name": "amount.worker.vcpu"},
        {"name": "amount.worker.vcpu", "min": -1},
        {"name": "amount.worker.memory", "min": 512},
        {"name": "amount.worker.gpu", "min": 0},
        {"name": "amount.licence", "min": 1},
        {"name": "licence", "min": 1},
        {"name": "amount.worker.unknown", "min": 1},
        {"name": "AMOUNT.Worker.VCPU", "min": 1},
        {"name": "amount.a:b.c", "min": 1},
    ]
    for n, amount in enumerate(amounts):
        yield Case(f"amount {n}", template([step(hostRequirements={"amounts": [amount]})]))
    attributes: list[Document] = [
        {"name": "attr.worker.os.family", "anyOf": ["linux"]},
        {"name": "attr.worker.os.family", "anyOf": ["beos"]},
        {"name": "attr.worker.cpu.arch", "anyOf": ["x86_64", "arm64"]},
        {"name": "attr.worker.cpu.arch", "allOf": ["x86_64", "arm64"]},
        {"name": "attr.mount", "allOf": ["show", "assets"]},
        {"name": "attr.mount"},
        {"name": "attr.mount", "anyOf": []},
        {"name": "attr.worker.mount", "anyOf": ["a"]},
        {"name": "attr.mount", "anyOf": ["a b"]},
        {"name": "mount", "anyOf": ["a"]},
    ]
    for n, attribute in enumerate(attributes):
        yield Case(f"attribute {n}", template([step(hostRequirements={"attributes": [attribute]})]))
    yield Case("no requirements", template([step(hostRequirements={})]))


def scripts() -> Iterator[Case]:
    """Actions, embedded files, environments and references."""
    for n, text in enumerate(
        [
            "{{Param.X}}",
            "{{Task.Param.X}}",
            "{{Session.WorkingDirectory}}",
            "{{Task.File.F}}",
            "{{Env.File.F}}",
            "{{ }}",
            "{{",
            "}}",
            "{{Param X}}",
        ]
    ):
        yield Case(f"reference {n}", template([step(args=[text])]))
    actions: list[Document] = [
        {"timeout": 1},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "5"},
        {"cancelation": {"mode": "TERMINATE"}},
        {"cancelation": {"mode": "NOTIFY_THEN_TERMINATE"}},
        {"cancelation": {"mode": "NOTIFY_THEN_TERMINATE", "notifyPeriodInSeconds": 5}},
        {"cancelation": {"mode": "NOTIFY_THEN_TERMINATE", "notifyPeriodInSeconds": 601}},
        {"cancelation": {"mode": "SLOWLY"}},
        {"args": []},
        {"command": ""},
        {"colour": "red"},
    ]
    for n, fields in enumerate(actions):
        script = {"actions": {"onRun": {"command": "echo", **fields}}}
        yield Case(f"action {n}", template([{"name": "S", "script": script}]))
    files: list[Document] = [
        {"name": "F", "type": "TEXT", "data": "x"},
        {"name": "F", "type": "BINARY", "data": "x"},
        {"name": "F", "type": "TEXT"},
        {"name": "F", "type": "TEXT", "data": "x", "filename": "a.sh"},
        {"name": "F", "type": "TEXT", "data": "x", "filename": "a/b"},
        {"name": "F", "type": "TEXT", "data": "x", "runnable": True},
        {"name": "1F", "type": "TEXT", "data": "x"},
    ]
    for n, file in enumerate(files):
        script = {"actions": {"onRun": {"command": "echo"}}, "embeddedFiles": [file]}
        yield Case(f"file {n}", template([{"name": "S", "script": script}]))
    action = {"onEnter": {"command": "true"}}
    environments: list[Document] = [
        {"name": "E", "variables": {"A": "b"}},
        {"name": "E"},
        {"name": "E", "script": {"actions": action}},
        {"name": "E", "variables": {}},
        {"name": "E", "variables": {"1A": "b"}},
        {"name": "E", "script": {"actions": {}}},
        {"name": "", "variables": {"A": "b"}},
    ]
    for n, environment in enumerate(environments):
        yield Case(f"environment {n}", template([step()], jobEnvironments=[environment]))
    both = {"name": "E", "variables": {"A": "b"}}
    yield Case(
        "two environments of one name", template([step(stepEnvironments=[both])], jobEnvironments=[both])
    )


def disputed() -> Iterator[Case]:
    """What the two programs see differently on purpose."""
    yield Case("a number as an argument", template([step(args=[1])]))
    environment = {"name": "E", "variables": {"A": 5}}
    yield Case("a number as a variable", template([step()], jobEnvironments=[environment]))
    yield Case("an empty description", template([step()], description=""))
    for name, value in [("a whole float", 3.0), ("an underscore", "1_000")]:
        definition = {"name": "P", "type": "INT", "default": value}
        yield Case(f"{name} as the default of an INT", template([step()], parameterDefinitions=[definition]))
    actions = {"onRun": {"command": "echo"}}
    file = {"name": "F", "type": "TEXT", "data": "x", "filename": "a"}
    for name, files in [
        ("two files of one name", [file, {**file, "name": "G"}]),
        ("a file named ..", [{**file, "filename": ".."}]),
    ]:
        yield Case(name, template([{"name": "S", "script": {"actions": actions, "embeddedFiles": files}}]))


def all_cases() -> Iterator[Case]:
    """All templates."""
    families = [
        number_ranges(),
        combinations(),
        chunks(),
        random_chunks(40),
        job_parameters(),
        controls(),
        names(),
        requirements(),
        scripts(),
        disputed(),
    ]
    return itertools.chain.from_iterable(families)
