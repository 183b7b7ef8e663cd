//! Subscriptions: what a show gets of an allocation. Sizes and bursts are hundredths of cores in requests, too.

use super::fields::{Answer, ROWS_MAX, hundredths};
use crate::cuebot::Cuebot;
use crate::generated::facility::{AllocGetSubscriptionsRequest, AllocGetSubscriptionsResponse};
use crate::generated::show::{
    ShowCreateSubscriptionRequest, ShowCreateSubscriptionResponse, ShowGetSubscriptionRequest,
    ShowGetSubscriptionResponse,
};
use crate::generated::subscription::*;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;

pub(super) fn routes(routes: Routes) -> Routes {
    setters(answers(routes))
        .route("/subscription.SubscriptionInterface/Delete", unary(delete))
        .route("/show.ShowInterface/CreateSubscription", unary(create))
}

const SUBSCRIPTIONS: &str = "
SELECT s.pk_subscription, a.str_name || '.' || w.str_name AS name, w.str_name AS show, f.str_name AS facility,
       a.str_name AS alloc, s.int_size, s.int_burst, s.int_cores, s.int_gpus
  FROM subscription s JOIN show w USING (pk_show) JOIN alloc a USING (pk_alloc) JOIN facility f USING (pk_facility)";

/// A number of a column that is wider than the field of the message.
fn whole(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn subscription(row: &Row) -> Subscription {
    Subscription {
        id: row.get("pk_subscription"),
        name: row.get("name"),
        show_name: row.get("show"),
        facility: row.get("facility"),
        allocation_name: row.get("alloc"),
        size: whole(row.get("int_size")),
        burst: whole(row.get("int_burst")),
        reserved_cores: row.get("int_cores"),
        reserved_gpus: row.get("int_gpus"),
    }
}

async fn list(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<Vec<Subscription>, CallError> {
    let statement = format!("{SUBSCRIPTIONS} WHERE {which} ORDER BY name LIMIT {ROWS_MAX}");
    let rows = cuebot.pool.get().await?.query(&statement, &[&key]).await?;
    Ok(rows.iter().map(subscription).collect())
}

async fn one(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<Subscription, CallError> {
    let found = list(cuebot, which, key).await?.into_iter().next();
    found.ok_or_else(|| CallError::Missing { what: "subscription", name: key.to_owned() })
}

const BY_ID: &str = "s.pk_subscription = $1";

answers! { |cuebot, ask|
    "/subscription.SubscriptionInterface/Get": SubscriptionGetRequest => SubscriptionGetResponse {
        subscription: Some(one(&cuebot, BY_ID, &ask.id).await?)
    };
    // The name of a subscription is that of the allocation, a dot, and that of the show.
    "/subscription.SubscriptionInterface/Find": SubscriptionFindRequest => SubscriptionFindResponse {
        subscription: Some(one(&cuebot, "a.str_name || '.' || w.str_name = $1", &ask.name).await?)
    };
    "/show.ShowInterface/GetSubscriptions": ShowGetSubscriptionRequest => ShowGetSubscriptionResponse {
        subscriptions: Some(SubscriptionSeq {
            subscriptions: list(&cuebot, "s.pk_show = $1", key!(ask.show)?).await?
        })
    };
    "/facility.AllocationInterface/GetSubscriptions": AllocGetSubscriptionsRequest => AllocGetSubscriptionsResponse {
        subscriptions: Some(SubscriptionSeq {
            subscriptions: list(&cuebot, "s.pk_alloc = $1", key!(ask.allocation)?).await?
        })
    };
}

/// The cores that frames of the show use there already count from the start.
const CREATE: &str = "
INSERT INTO subscription (pk_subscription, pk_show, pk_alloc, int_size, int_burst, int_cores, int_gpus)
SELECT gen_random_uuid()::text, w.pk_show, a.pk_alloc, $3::bigint, $4::bigint,
       coalesce((SELECT sum(int_cores_reserved) FROM proc p JOIN host h USING (pk_host)
                  WHERE p.pk_show = w.pk_show AND h.pk_alloc = a.pk_alloc), 0)::int,
       coalesce((SELECT sum(int_gpus_reserved) FROM proc p JOIN host h USING (pk_host)
                  WHERE p.pk_show = w.pk_show AND h.pk_alloc = a.pk_alloc), 0)::int
  FROM show w CROSS JOIN alloc a WHERE w.pk_show = $1 AND a.pk_alloc = $2
RETURNING pk_subscription";

/// Adds a subscription: a show may use an allocation.
async fn create(
    cuebot: Arc<Cuebot>,
    ask: ShowCreateSubscriptionRequest,
) -> Answer<ShowCreateSubscriptionResponse> {
    let key = key!(ask.show)?;
    let (size, burst) = (i64::from(hundredths(ask.size)?.max(0)), i64::from(hundredths(ask.burst)?.max(0)));
    let client = cuebot.pool.get().await?;
    let made =
        client.query_opt(CREATE, &[&key, &ask.allocation_id, &size, &burst]).await.map_err(|error| {
            CallError::taken(error, "subscription of the show to allocation", &ask.allocation_id)
        })?;
    let made = made
        .ok_or_else(|| CallError::Missing { what: "show or allocation", name: ask.allocation_id.clone() })?;
    drop(client);
    let made = one(&cuebot, BY_ID, made.get(0)).await?;
    Ok(ShowCreateSubscriptionResponse { subscription: Some(made) })
}

setters!("subscription.SubscriptionInterface", subscription {
    "SetSize": SubscriptionSetSizeRequest, |ask| i64::from(ask.new_size.max(0)),
        "UPDATE subscription SET int_size = $2 WHERE pk_subscription = $1";
    "SetBurst": SubscriptionSetBurstRequest, |ask| i64::from(ask.burst.max(0)),
        "UPDATE subscription SET int_burst = $2 WHERE pk_subscription = $1";
});

/// Deletes a subscription under which no frame runs.
async fn delete(cuebot: Arc<Cuebot>, ask: SubscriptionDeleteRequest) -> Answer<()> {
    let key = key!(ask.subscription)?;
    let statement = "DELETE FROM subscription s WHERE pk_subscription = $1 AND NOT EXISTS (
        SELECT 1 FROM proc p JOIN host h USING (pk_host) WHERE p.pk_show = s.pk_show AND h.pk_alloc = s.pk_alloc)";
    if cuebot.pool.get().await?.execute(statement, &[&key]).await? == 0 {
        let held = one(&cuebot, BY_ID, key).await?;
        return Err(CallError::Value(format!(
            "frames of the show run in subscription '{}'; set its burst to 0 and wait until they end",
            held.name
        )));
    }
    Ok(())
}
