#include "common/comm/nccl_rendezvous.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kFormingPause = absl::Milliseconds(1);
// The end of the timeout, kept for asking the store which ranks are still there.
constexpr absl::Duration kMostForNaming = absl::Seconds(1);

absl::Duration TimeUntil(absl::Time deadline) {
  return std::max(deadline - absl::Now(), absl::ZeroDuration());
}

// Forms the communicator on a thread of its own: even a non-blocking one may block on the host.
// Throws std::runtime_error.
NcclCommunicator* FormCommunicator(NcclApi& api, int size, int rank, const std::string& id,
                                   const std::atomic<bool>& abandoned) {
  api.device().MakeCurrent();
  NcclCommunicator* comm = nullptr;
  int result = api.CommInitRank(&comm, size, id, rank);
  while (result == NcclApi::kInProgress && !abandoned.load()) {
    absl::SleepFor(kFormingPause);
    int state = NcclApi::kSuccess;
    result = api.CommGetAsyncError(comm, &state);
    if (result == NcclApi::kSuccess) result = state;
  }
  if (result == NcclApi::kSuccess && !abandoned.load()) return comm;
  const std::string text = api.ErrorText(result, comm);
  if (comm != nullptr) api.CommAbort(comm);
  throw std::runtime_error(text);
}

// Waits for every rank to join, and returns rank 0's id.
absl::StatusOr<std::string> AwaitAll(const GroupOptions& options, StoreClient& store,
                                     absl::Time deadline) {
  std::string id;
  for (int rank = 0; rank < options.size; ++rank) {
    absl::StatusOr<std::string> joined =
        store.Get(NcclReportKey(options, "joined", rank), TimeUntil(deadline), options.cancel);
    if (absl::IsDeadlineExceeded(joined.status())) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", rank, " has not joined by the deadline"));
    }
    RETURN_IF_ERROR(joined.status());
    if (rank == 0) id = *std::move(joined);
  }
  return id;
}

// Adds the ranks that do not report by the deadline.
absl::Status NameLostRanks(const GroupOptions& options, StoreClient& store, absl::Time deadline,
                           const absl::Status& failure) {
  std::vector<int> lost;
  for (int rank = 0; rank < options.size; ++rank) {
    const absl::Status settled =
        store.Get(NcclReportKey(options, "settled", rank), TimeUntil(deadline)).status();
    if (absl::IsDeadlineExceeded(settled)) {
      lost.push_back(rank);
    } else if (!settled.ok()) {
      return absl::Status(failure.code(), absl::StrCat(failure.message(),
                                                       "; the store is gone: ", settled.message()));
    }
  }
  if (lost.empty()) return failure;
  return absl::Status(failure.code(), absl::StrCat(failure.message(), "; no report from rank ",
                                                   absl::StrJoin(lost, ", ")));
}

}  // namespace

std::string NcclReportKey(const GroupOptions& options, const char* report, int rank) {
  return absl::StrCat(options.rendezvous.prefix, "/nccl/", report, "/", rank);
}

absl::StatusOr<NcclCommunicator*> JoinCommunicator(const GroupOptions& options,
                                                   std::shared_ptr<NcclApi> api) {
  const absl::Time deadline = absl::Now() + options.timeout;
  const absl::Time forming_deadline = deadline - std::min(kMostForNaming, options.timeout / 4);
  const std::string what =
      absl::StrCat("group ", options.name, ", rank ", options.rank, " of ", options.size, ": NCCL");
  const auto with_place = [&](const absl::Status& status) {
    return status.ok() ? status : RendezvousError(options, status);
  };
  absl::StatusOr<std::unique_ptr<StoreClient>> store =
      StoreClient::Connect(options.rendezvous, options.timeout, options.cancel);
  RETURN_IF_ERROR(with_place(store.status()));

  std::string id;
  if (options.rank == 0) {
    const int result = api->GetUniqueId(id);
    if (result != NcclApi::kSuccess) {
      return absl::UnavailableError(
          absl::StrCat(what, ": no id: ", api->ErrorText(result, nullptr)));
    }
  }
  RETURN_IF_ERROR(with_place((*store)->Set(NcclReportKey(options, "joined", options.rank), id)));
  absl::StatusOr<std::string> all = AwaitAll(options, **store, forming_deadline);
  RETURN_IF_ERROR(with_place(all.status()));

  auto abandoned = std::make_shared<std::atomic<bool>>(false);
  std::function<NcclCommunicator*()> form = [api, size = options.size, rank = options.rank,
                                             id = *std::move(all), abandoned] {
    return FormCommunicator(*api, size, rank, id, *abandoned);
  };
  absl::StatusOr<NcclCommunicator*> comm = RunWithDeadline<NcclCommunicator*>(
      std::move(form), forming_deadline, options.cancel, abandoned, what);
  const absl::Status reported = (*store)->Set(NcclReportKey(options, "settled", options.rank), "");
  if (!comm.ok() && !absl::IsCancelled(comm.status()) && reported.ok()) {
    return NameLostRanks(options, **store, deadline, comm.status());
  }
  return comm;
}

}  // namespace tandem::comm
