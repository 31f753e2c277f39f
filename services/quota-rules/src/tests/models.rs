//! GPUs of one of several models: what is left to choose from, and what counts where.

use super::check;

#[test]
fn a_model_without_quota_is_left_out_and_does_not_refuse() {
    check(
        "node n1 H100, node n2 T4, limit a gpu 20000, limit a gpu:H100 0
         ask 1 a gpu=1 => 1 reserved on [] not [H100]
         ask 2 a gpu=1:H100:T4 => 2 reserved on [T4] not [H100]
         ask 3 a gpu=1:H100 => 3 denied quota never fits: a gpu:H100 (limit 0, actual 1000)
         ask 4 a gpu=1:H100:V100 => 4 reserved on [V100] not [H100]",
    );
}

#[test]
fn on_a_node_it_counts_on_the_model_of_that_node_only() {
    check(
        "node n1 H100, node n2 T4, limit a gpu 20000, limit a gpu:H100 8000, limit a gpu:T4 8000
         ask 1 a/x gpu=8 => 1 reserved on [H100,T4] not []
         ? a gpu:H100 => 8000/0
         ? a gpu:T4 => 8000/0
         place 1 n2, start 1
         ? a gpu:H100 => 0/0
         ? a gpu:T4 => 0/8000
         ? a/x gpu:T4 => 0/8000
         ask 2 a gpu=8:H100, ask 3 a gpu=1:T4 => 2 reserved; 3 denied quota exceeded: a gpu:T4 (limit 8000, actual 9000)
         end 1, ask 4 a gpu=1:T4 => 1 released; 4 reserved
         ? a gpu:T4 => 1000/0",
    );
}

#[test]
fn without_limits_on_models_it_counts_where_it_is_all_the_same() {
    check(
        "node n1 H100, node n2 T4, limit a gpu 20000
         ask 1 a gpu=2 => 1 reserved
         place 1 n1, start 1
         ? a gpu:H100 => 0/2000
         ? a gpu:T4 => 0/0
         limit a gpu:H100 2000
         ask 2 a gpu=1:H100 => 2 denied quota exceeded: a gpu:H100 (limit 2000, actual 3000)
         requeue 1
         ? a gpu:H100 => 2000/0
         ? a gpu:T4 => 2000/0",
    );
}

#[test]
fn who_runs_again_asks_again() {
    check(
        "node n1 H100, node n2 T4, tenant a wait, limit a gpu 90000, limit a gpu:H100 8000, limit a gpu:T4 8000
         ask 1 a gpu=8 => 1 reserved on [H100,T4] not []
         place 1 n2, start 1
         ask 2 a gpu=8:H100 => 2 reserved
         requeue 1
         ? a gpu:T4 => 8000/0
         off 1 => 1 released; 1 reserved on [T4] not [H100]
         ? a gpu:H100 => 8000/0
         place 1 n2, start 1, requeue 1, ask 3 a gpu=8:T4 prio=1 => 3 waits quota exceeded: a gpu:T4 (limit 8000, actual 16000)
         off 1 => 1 released; 3 reserved; 1 waits quota exceeded: a gpu:* (limit 8000, actual 16000)
         end 2 => 2 released; 1 reserved on [H100] not [T4]",
    );
}

#[test]
fn who_may_choose_waits_for_each_of_its_models() {
    check(
        "node n1 H100, node n2 T4, tenant a wait, limit a gpu 90000, limit a/x gpu:H100 1000, limit a gpu:T4 1000
         ask 1 a/x gpu=1:H100, ask 2 a/x gpu=1:T4 => 1 reserved; 2 reserved
         ask 3 a/x gpu=1, ask 4 a/x gpu=1:H100:T4 => 3 waits quota exceeded: a gpu:* (limit 1000, actual 2000); 4 waits quota exceeded: a gpu:H100|T4 (limit 1000, actual 2000)
         end 2 => 2 released; 3 reserved on [T4] not [H100]
         end 1 => 1 released; 4 reserved on [H100] not [T4]
         ask 5 a/x gpu=1 => 5 waits quota exceeded: a gpu:* (limit 1000, actual 2000)
         limit a gpu:T4 2000 => 5 reserved on [T4] not [H100]
         ask 6 a/x gpu=1 => 6 waits quota exceeded: a gpu:* (limit 1000, actual 2000)
         node n3 A100 => 6 reserved on [] not [H100,T4]",
    );
}

#[test]
fn nobody_overtakes_one_who_waits_for_the_same_models() {
    check(
        "node n1 H100, node n2 T4, tenant a wait, limit a gpu 90000, limit a gpu:H100 4000, limit a gpu:T4 4000
         ask 1 a gpu=2:H100, ask 2 a gpu=2:T4, ask 3 a gpu=4 => 1 reserved; 2 reserved; 3 waits quota exceeded: a gpu:* (limit 4000, actual 6000)
         ask 4 a gpu=1, ask 5 a gpu=1:T4 => 4 waits quota exceeded: a gpu:* (limit 4000, actual 6000); 5 waits quota exceeded: a gpu:T4 (limit 4000, actual 6000)
         end 2 => 2 released; 3 reserved on [T4] not [H100]; 4 reserved on [H100] not [T4]
         end 3 => 3 released; 5 reserved",
    );
}

#[test]
fn whom_no_model_could_ever_be_had_for_is_denied_or_stands_aside() {
    check(
        "node n1 H100, node n2 T4, tenant a wait, limit a gpu 90000, limit a gpu:H100 4000, limit a gpu:T4 4000
         ask 1 a gpu=5 => 1 denied quota never fits: a gpu:* (limit 4000, actual 5000)
         ask 2 a gpu=4:H100, ask 3 a gpu=4:T4, ask 4 a gpu=4 => 2 reserved; 3 reserved; 4 waits quota exceeded: a gpu:* (limit 4000, actual 8000)
         limit a gpu:H100 3000, limit a gpu:T4 3000 => 4 waits quota never fits: a gpu:* (limit 3000, actual 4000)
         ask 5 a gpu=1 => 5 waits quota exceeded: a gpu:* (limit 3000, actual 5000)
         end 3 => 3 released; 5 reserved on [T4] not [H100]
         limit a gpu:T4 5000 => 4 reserved on [T4] not [H100]",
    );
}

#[test]
fn a_gang_counts_with_all_that_its_members_may_take() {
    check(
        "node n1 H100, node n2 T4, tenant a wait, limit a gpu 90000, limit a gpu:H100 4000, limit a gpu:T4 4000
         ask 1 a gpu=3:H100 gang=g/2, ask 2 a gpu=3 gang=g/2 => 1 waits incomplete gang: gang (limit 2, actual 1); 1 reserved; 2 reserved on [T4] not [H100]
         ask 3 a gpu=1:H100 gang=h/2, ask 4 a gpu=2 gang=h/2 => 3 waits incomplete gang: gang (limit 2, actual 1); 3 waits quota exceeded: a gpu:* (limit 4000, actual 6000); 4 waits quota exceeded: a gpu:* (limit 4000, actual 6000)",
    );
}

#[test]
fn a_burst_goes_on_when_the_model_is_known() {
    check(
        "node n1 H100, limit a gpu 90000, limit a gpu:H100 2000 burst=4000/100
         ask 1 a gpu=3 => 1 reserved burst on [H100] not []
         at 50, place 1 n1, start 1
         at 99
         at 100 => 1 reclaimed",
    );
}

#[test]
fn names_of_models_and_of_choices_leave_nothing_behind() {
    check(
        "limit a gpu 90000
         ask 1 a gpu=1:A:B, ask 2 a gpu=1:A:B, ask 3 a gpu=1 => 1 reserved; 2 reserved; 3 reserved
         ? names => 2
         node n A, place 1 n, place 3 n
         ? names => 2
         end 1, end 2 => 1 released; 2 released
         ? names => 1
         end 3 => 3 released
         ? names => 0",
    );
}

#[test]
fn a_model_that_no_node_has_any_more_is_waited_for_no_longer() {
    check(
        "node n1 T4, node n2 V100, tenant a wait, limit a gpu 90000, limit a gpu:T4 1000, limit a gpu:V100 0
         ask 1 a gpu=1:T4 => 1 reserved
         ask 2 a gpu=1 => 2 waits quota exceeded: a gpu:* (limit 1000, actual 2000)
         node n1 V100 => 2 waits quota never fits: a gpu:* (limit 0, actual 1000)
         node n1 T4 => 2 waits quota exceeded: a gpu:* (limit 1000, actual 2000)
         node n1 - => 2 waits quota never fits: a gpu:* (limit 0, actual 1000)",
    );
}

#[test]
fn another_head_of_a_choice_leaves_its_models_to_those_behind() {
    check(
        "node n1 T4, node n2 V100, tenant a wait, limit a gpu 90000, limit a/p gpu:T4 0, limit a/p gpu:V100 2000, limit a/q gpu:T4 0, limit a/q gpu:V100 1000
         ask 1 a/p gpu=1:V100 => 1 reserved
         ask 2 a/q gpu=1:V100 => 2 reserved
         ask 3 a/p gpu=2:T4:V100 => 3 waits quota exceeded: a gpu:T4|V100 (limit 0, actual 2000)
         ask 4 a/p gpu=1:V100 => 4 waits quota exceeded: a/p gpu:V100 (limit 2000, actual 3000)
         ask 5 a/q gpu=1:T4:V100 prio=5 => 5 waits quota exceeded: a gpu:T4|V100 (limit 0, actual 1000); 4 waits quota exceeded: a gpu:V100 (limit 2000, actual 3000)",
    );
}
