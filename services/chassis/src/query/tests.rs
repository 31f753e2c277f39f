//! What is refused before a verb sees it, and what a strict read waits for.

use super::*;

/// Answers with the name that it was asked about, in the asker's name.
struct Echo;

impl Verb for Echo {
    const NAME: &'static str = "resource";
    type Query = v1::ResourceQuery;
    type Reply = v1::ResourceReply;

    fn position(query: &v1::ResourceQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<v1::ResourceQuery>) -> Result<v1::ResourceReply, Trouble> {
        match &*asked.query.resource {
            "" => return Err(Trouble::refused(Rule::NameInvalid, "resource")),
            "lost" => {
                return Err(Trouble::Unavailable(
                    "the database at 10.0.0.7 is away".into(),
                ));
            }
            _ => {}
        }
        let view = v1::ResourceView {
            resource: format!("{}/{}", asked.tenant, asked.query.resource),
            lsn: asked.applied.0,
            ..v1::ResourceView::default()
        };
        Ok(v1::ResourceReply {
            view: Some(view),
            refusal: None,
        })
    }
}

#[test]
fn one_more_than_a_page_has_is_cut_and_told() {
    let check = |found: &[u8], limit, shown: &[u8], has_more| {
        let mut page = found.to_vec();
        assert_eq!(cut(&mut page, limit), has_more, "{found:?} {limit}");
        assert_eq!(page, shown);
    };
    check(&[], 1, &[], false);
    check(&[1, 2], 2, &[1, 2], false);
    check(&[1, 2, 3], 2, &[1, 2], true);
    check(&[1, 2], 3, &[1, 2], false);
}

#[test]
fn a_page_is_cut_to_what_a_message_has_room_for_and_has_one_row_at_least() {
    let check = |rows: &[usize], shown: usize, has_more| {
        let row = |bytes: &usize| v1::ResourceView {
            resource: "r".repeat(*bytes),
            ..v1::ResourceView::default()
        };
        let mut page: Vec<_> = rows.iter().map(row).collect();
        assert_eq!(cut_to_fit(&mut page), has_more, "{rows:?}");
        assert_eq!(page.len(), shown, "{rows:?}");
    };
    check(&[], 0, false);
    check(&[1, 2, 3], 3, false);
    let half = PAGE_BYTES_MAX / 2;
    check(&[half, half, 1], 1, true);
    check(&[half, half - 64, 1], 3, false);
    check(&[PAGE_BYTES_MAX, 1], 1, true);
    check(&[PAGE_BYTES_MAX], 1, false);
    assert!(sendable(vec![0; REPLY_BYTES_MAX]).is_ok());
    let refused = sendable(vec![0; REPLY_BYTES_MAX + 1]);
    let Err(Trouble::Refused(refusal)) = refused else {
        panic!("{refused:?}");
    };
    let (limit, actual) = (REPLY_BYTES_MAX as u64, REPLY_BYTES_MAX as u64 + 1);
    let expected = Refusal::over(Rule::PayloadTooLarge, "reply", limit, actual);
    assert_eq!(refusal, expected);
}

/// A payload, with the read model at position 5; then the view, or the refusal.
async fn check(payload: &[u8], expected: &str) {
    let mark = Mark::default();
    mark.set(Lsn(5));
    let echo = Answering {
        verb: Echo,
        mark,
        patience: Duration::ZERO,
    };
    let answering = Semaphore::new(2);
    let tenant = Token::new("t").unwrap();
    let bytes = said(
        Echo::NAME,
        echo.answer(tenant, payload, [&answering; 2]).await,
    );
    // What is refused uniformly is read as the verb's own reply.
    let reply = v1::ResourceReply::decode(&*bytes).unwrap();
    let said = match (reply.view, reply.refusal) {
        (Some(view), None) => format!("{} @{}", view.resource, view.lsn),
        (None, Some(refusal)) => {
            let rule = Rule::from_number(refusal.rule).unwrap();
            let (limit, actual) = (refusal.limit, refusal.actual);
            format!("{} {} {limit} {actual}", rule.name(), refusal.subject)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(said, expected, "{payload:?}");
}

#[tokio::test]
async fn a_query_is_answered_or_refused_by_name() {
    let query = |resource: &str, at_lsn| {
        let resource = resource.to_owned();
        v1::ResourceQuery { resource, at_lsn }.encode_to_vec()
    };
    check(&query("r", 0), "t/r @5").await;
    check(&query("r", 5), "t/r @5").await;
    check(&query("r", 6), "not_applied at_lsn 5 6").await;
    check(&query("", 0), "name_invalid resource 0 0").await;
    check(&query("lost", 0), "answer_unavailable resource 0 0").await;
    check(b"\xff\xff", "malformed_message payload 0 0").await;
    let unknown = [query("r", 0), vec![0x7a, 1, b'x']].concat();
    check(&unknown, "unknown_field field 15 0 0").await;
    let with_default = [query("r", 0), vec![16, 0]].concat();
    check(&with_default, "unknown_field encoding 0 0").await;
    let large = query(&"r".repeat(QUERY_BYTES_MAX), 0);
    let actual = large.len();
    check(&large, &format!("payload_too_large payload 65536 {actual}")).await;
}

#[test]
fn what_is_tried_is_a_tenants_and_no_more_than_the_inbox_lets_in() {
    let spec = |change: fn(&mut v1::AllocationSpec)| {
        let mut spec = v1::AllocationSpec {
            job_set: "j".to_owned(),
            cpu_milli: 500,
            ..v1::AllocationSpec::default()
        };
        change(&mut spec);
        Some(spec)
    };
    let check = |tenant: &str, spec: Option<v1::AllocationSpec>, expected: Result<(), Rule>| {
        let asked = Asked {
            tenant: Token::new(tenant).unwrap(),
            applied: Lsn(0),
            query: (),
        };
        let found = match tried(&asked, spec.as_ref()) {
            Ok((whose, read)) => {
                assert_eq!((whose.as_str(), read.cpu_milli), (tenant, 500));
                Ok(())
            }
            Err(Trouble::Refused(refusal)) => Err(refusal.rule),
            Err(Trouble::Unavailable(error)) => panic!("{error}"),
        };
        assert_eq!(found, expected, "{tenant} {spec:?}");
    };
    check("t", spec(|_| ()), Ok(()));
    check(OPERATOR, spec(|_| ()), Err(Rule::TenantUnknown));
    check("t", None, Err(Rule::MalformedMessage));
    let no_name = spec(|it| it.job_set.clear());
    check("t", no_name, Err(Rule::MalformedMessage));
    let invalid = [
        spec(|it| it.cpu_milli = AllocationSpec::CPU_MILLI_MAX + 1),
        spec(|it| it.priority = i32::MIN),
        spec(|it| {
            it.gpu = Some(v1::GpuRequest {
                count: 17,
                milli: 1000,
                models: Vec::new(),
            });
        }),
        spec(|it| {
            it.extended = vec![v1::ExtendedAmount::default(); 9];
            for (one, nth) in it.extended.iter_mut().zip(0..) {
                one.name = format!("r{nth}");
            }
        }),
    ];
    for spec in invalid {
        check("t", spec, Err(Rule::SettingInvalid));
    }
}
