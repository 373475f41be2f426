"""From logs to results: by set, of the model that was kept, without times."""

from footplate.hub.results import MAX_ROWS, find_results, find_rows, split_metrics, thin

TIMES = {"eval_runtime": 1.0, "eval_samples_per_second": 3.0, "eval_steps_per_second": 1.0}


def entry(step, accuracy, **more):
    return {"eval_loss": 1 / accuracy, "eval_accuracy": accuracy, **TIMES, "epoch": 1.0, "step": step, **more}


END = {"train_runtime": 2.0, "train_loss": 1.0, "step": 30}
HISTORY = [entry(10, 0.5), entry(20, 0.8), entry(30, 0.6), END]


def test_the_last_result_counts():
    assert find_results(HISTORY)["eval"]["accuracy"] == 0.6


def test_of_the_best_model_if_it_was_loaded_and_of_what_was_measured_after_training():
    assert find_results(HISTORY, best_step=20)["eval"] == {"loss": 1.25, "accuracy": 0.8}
    assert find_results([*HISTORY, entry(30, 0.81)], best_step=20)["eval"]["accuracy"] == 0.81


def test_several_sets_have_a_result_each_and_share_a_row():
    history = [
        {"loss": 3.0, "step": 5},
        {"eval_old_loss": 1.0, "eval_old_runtime": 1.0, "step": 10},
        {"eval_new_data_loss": 2.0, "eval_new_data_runtime": 1.0, "step": 10},
        {"eval_loss": 1.5, "step": 10},
        END,
    ]
    found = find_results(history)
    assert found == {"eval_old": {"loss": 1.0}, "eval_new_data": {"loss": 2.0}, "eval": {"loss": 1.5}}
    (row,) = find_rows(history)
    assert row["Validation Loss (new_data)"] == 2.0
    assert row["Training Loss"] == 3.0


def test_times_flags_and_text_are_no_results():
    given = {**TIMES, "eval_samples": 5, "eval_ok": True, "eval_note": "x", "eval_f1": 0.5, "train_loss": 1.0}
    assert split_metrics(given, ["eval"]) == {"eval": {"f1": 0.5}}


def test_a_long_table_is_thinned_to_its_ends():
    rows = [{"Step": step} for step in range(1000)]
    kept = thin(rows)
    assert len(kept) == MAX_ROWS
    assert (kept[0], kept[-1]) == (rows[0], rows[-1])
