#include "common/comm/roll_call.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/store_connection.h"
#include "common/host/cpu_list.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);  // of the store, to a question
constexpr absl::Duration kUnreachableLimit = absl::Seconds(5);

std::string KeyOf(int rank) { return absl::StrCat("rank-", rank); }

// Waits for the first missing rank until `until`, then removes those that are there.
absl::Status Await(StoreConnection& store, absl::Time until, const Cancelled& cancelled,
                   std::vector<int>& missing) {
  const absl::Status first = store.WaitFor(KeyOf(missing.front()), until, cancelled);
  if (!first.ok() && !absl::IsDeadlineExceeded(first)) return first;
  std::vector<int> still_missing;
  for (const int rank : missing) {
    ASSIGN_OR_RETURN(const bool is_there,
                     store.Check(KeyOf(rank), absl::Now() + kAnswerTimeout, cancelled));
    if (!is_there) still_missing.push_back(rank);
  }
  missing = std::move(still_missing);
  return absl::OkStatus();
}

}  // namespace

absl::Status CallRoll(const RollCallOptions& options) {
  Rendezvous rendezvous = options.rendezvous;
  absl::StrAppend(&rendezvous.prefix, "/roll-call");
  const absl::Time deadline = absl::Now() + options.timeout;
  const Cancelled cancelled = [cancel = options.cancel] {
    return cancel != nullptr && cancel->HasBeenNotified();
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreConnection> store,
                   StoreConnection::Open(rendezvous, deadline, cancelled));
  if (options.rank > 0) return store->Set(KeyOf(options.rank), "present", deadline);
  std::vector<int> missing;
  for (int rank = 1; rank < options.size; ++rank) missing.push_back(rank);
  while (true) {
    RETURN_IF_ERROR(
        Await(*store, std::min(deadline, absl::Now() + options.interval), cancelled, missing));
    if (missing.empty()) return absl::OkStatus();
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank 0 waited ", absl::FormatDuration(options.timeout), " for rank ",
                       host::FormatCpuList(missing), " of ", options.size, " at the rendezvous ",
                       rendezvous.host, ":", rendezvous.port,
                       ": start them, and check that they reach MASTER_ADDR:MASTER_PORT (nc -vz)"));
    }
    if (options.on_missing) options.on_missing(missing);
  }
}

Rendezvous AfterRollCall(Rendezvous rendezvous) {
  rendezvous.unreachable_limit = kUnreachableLimit;
  return rendezvous;
}

}  // namespace tandem::comm
