"""Answers and events are read, however they are cut."""

import random
import unittest

from windlass.answer import EventParser, refusal
from windlass.errors import Conflict, Garbled, NotFound, ServerDefect, Unavailable
from windlass.models import Counts, Event, JobEvent, Lagged, Task, TasksEvent, event_from_json

STREAM = (
    b': keep-alive\n\nid: 7\nevent: job\ndata: {"job":{"job":3,"state":"running","counts":{"total":2,"ready":2}}}\n\n'
    b'event: tasks\ndata: {"tasks":{"job":3,"counts":{"total":2},"tasks":'
    b'[{"index":1,"state":"failed","attempt":2,"exit_code":3}]}}\r\n\r\n'
    b'event: lagged\ndata: "lagged"\n\ndata: {"news":{}}\n\n'
)


class Events(unittest.TestCase):
    def test_a_stream_may_be_cut_anywhere(self) -> None:
        whole = list(EventParser().feed(STREAM))
        self.assertEqual([type(event) for event in whole], [JobEvent, TasksEvent, Lagged])
        for seed in range(50):
            at = sorted(random.Random(seed).sample(range(len(STREAM)), 5))
            parser, events = EventParser(), list[Event]()
            for start, end in zip([0, *at], [*at, len(STREAM)]):
                events += parser.feed(STREAM[start:end])
            self.assertEqual(events, whole, f"seed {seed}")
            self.assertEqual(parser.last_event_id, "7")

    def test_events_of_other_jobs_are_passed_over(self) -> None:
        self.assertEqual(list(EventParser({4}).feed(STREAM)), [Lagged()])
        self.assertEqual(len(list(EventParser({3}).feed(STREAM))), 3)

    def test_what_is_not_json_is_an_error(self) -> None:
        with self.assertRaises(Garbled):
            list(EventParser().feed(b"data: {]\n\n"))

    def test_a_task_of_an_event_has_an_id(self) -> None:
        event = list(EventParser().feed(STREAM))[1]
        assert isinstance(event, TasksEvent)
        task = event.tasks[0]
        self.assertEqual((task.id, task.has_ended, task.exit_code), ("3.1", True, 3))
        self.assertIsNone(event_from_json({"later": 1}))


class Answers(unittest.TestCase):
    def test_a_refusal_says_what_failed_and_what_to_do(self) -> None:
        body = b'{"error":{"code":"not_found","message":"there is no job 9","hint":"list them"}}'
        error = refusal(404, body, "a")
        error.doing = "show job 9"
        self.assertIsInstance(error, NotFound)
        self.assertEqual(str(error), "cannot show job 9: there is no job 9; list them")

    def test_a_code_of_a_newer_server_is_the_nearest_one(self) -> None:
        for status, kind in ((409, Conflict), (503, Unavailable), (500, ServerDefect)):
            self.assertIs(type(refusal(status, b'{"error":{"code":"new","message":"m"}}', "a")), kind)

    def test_another_program_is_not_a_server(self) -> None:
        self.assertIsInstance(refusal(404, b"<html>", "a"), Garbled)

    def test_fields_that_are_absent_are_unknown(self) -> None:
        task = Task.from_json({"id": "1.0", "job": 1, "index": 0, "step": "main", "state": "ready", "attempt": 0})
        self.assertEqual((task.exit_code, task.last.cpu_ms, task.value), (None, None, None))
        self.assertEqual(Counts.from_json({"total": 4, "failed": 1, "skipped": 2, "new": 5}).ended, 3)


if __name__ == "__main__":
    unittest.main()
