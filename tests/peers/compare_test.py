"""The comparer itself: a comparer that finds nothing proves nothing."""

import io
import json
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

import compare


def judged(*runs: dict[str, list[tuple[str, str]]]) -> int:
    """The exit code for runs given as {scenario: [(check, status)]}; one run is judged alone."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        words = []
        for nth, run in enumerate(runs):
            words.append(str(Path(folder) / str(nth)))
            for scenario, checks in run.items():
                place = Path(words[-1]) / f"{scenario}-2026-01-0{nth + 1}T10-00-00-000Z"
                place.mkdir(parents=True)
                (place / "checks.json").write_text(json.dumps([{"id": i, "status": s} for i, s in checks]))
        return compare.main(words if len(words) == 2 else ["--alone", *words])


class Compares(unittest.TestCase):
    def test_equal_runs_are_equal_whenever_they_ran(self):
        self.assertEqual(judged({"auth/a": [("x", "SUCCESS")]}, {"auth/a": [("x", "SUCCESS")]}), 0)

    def test_what_only_one_side_has_is_a_difference(self):
        self.assertEqual(judged({"a": [("x", "SUCCESS")]}, {"a": []}), 1)
        self.assertEqual(judged({"a": [("x", "SUCCESS")]}, {"a": [("x", "SUCCESS"), ("y", "SUCCESS")]}), 1)

    def test_each_time_a_check_was_made_counts(self):
        twice = {"a": [("x", "SUCCESS"), ("x", "FAILURE")]}
        self.assertEqual(judged(twice, {"a": [("x", "FAILURE"), ("x", "SUCCESS")]}), 1)
        self.assertEqual(judged(twice, twice), 0)

    def test_a_verdict_that_became_an_observation_is_a_difference(self):
        self.assertEqual(judged({"a": [("x", "SUCCESS")]}, {"a": [("x", "INFO")]}), 1)

    def test_observations_may_differ(self):
        verdict = [("x", "SUCCESS")]
        self.assertEqual(judged({"a": [("o", "INFO"), *verdict]}, {"a": [("o", "INFO"), ("o", "INFO"), *verdict]}), 0)

    def test_known_differences_may_differ_and_must(self):
        with tempfile.NamedTemporaryFile("w", suffix=".known") as file:
            file.write("a x  # why\nb\n")
            file.flush()
            known = compare.known_differences(file.name)
        self.assertEqual(known, {("a", "x"), ("b",)})
        ok, bad = [("SUCCESS", "")], [("FAILURE", "")]
        both = {("a", "x"): ok, ("b", "y"): ok, ("c", "z"): ok}
        with redirect_stdout(io.StringIO()):
            self.assertEqual(compare.compare(both, both | {("a", "x"): bad, ("b", "y"): bad}, "", known), 0)
            self.assertEqual(compare.compare(both, both | {("a", "x"): bad}, "", known), 1)
            self.assertEqual(compare.compare(both, {key: bad for key in both}, "", known), 1)

    def test_nothing_is_no_result(self):
        self.assertEqual(judged({}, {}), 1)
        self.assertEqual(judged({}), 1)

    def test_alone_known_failures_must_be_failures(self):
        known = {("a", "x")}
        with redirect_stdout(io.StringIO()):
            self.assertEqual(compare.alone({("a", "x"): [("FAILURE", "")], ("b", "y"): [("SUCCESS", "")]}, "", known), 0)
            self.assertEqual(compare.alone({("a", "x"): [("SUCCESS", "")]}, "", known), 1)
            self.assertEqual(compare.alone({("a", "x"): [("FAILURE", "")], ("b", "y"): [("FAILURE", "")]}, "", known), 1)

    def test_alone_a_warning_is_a_failure(self):
        self.assertEqual(judged({"a": [("x", "SUCCESS"), ("y", "SKIPPED")]}), 0)
        self.assertEqual(judged({"a": [("x", "WARNING")]}), 1)


if __name__ == "__main__":
    unittest.main()
