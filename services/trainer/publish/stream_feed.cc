#include "services/trainer/publish/stream_feed.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host/run_on_threads.h"
#include "common/telemetry/log.h"
#include "services/trainer/publish/update_attempt.h"

namespace tandem::trainer {

StreamFeed::StreamFeed(SendTransport& transport, Options options,
                       std::vector<ReplicaClient*> sources, TensorDigests digests)
    : transport_(transport),
      options_(options),
      sources_(std::move(sources)),
      digests_(std::move(digests)) {}

std::vector<StreamFeed::Result> StreamFeed::Run(const std::vector<Reader>& readers) {
  std::vector<Result> results(readers.size());
  std::atomic<size_t> next{0};
  host::RunOnThreads(readers.size(), [&] {
    for (size_t i = next++; i < readers.size(); i = next++) results[i] = Feed(readers[i], i);
  });
  return results;
}

StreamFeed::Result StreamFeed::Feed(Reader reader, size_t first_source) {
  const ReplicaClient& replica = *reader.replica;
  Result result;
  result.error = absl::UnavailableError(absl::StrCat("replica ", replica.id(), ": no other of ",
                                                     replica.num_ranks(), " ranks has version ",
                                                     options_.policy_version));
  for (size_t i = 0; i < sources_.size() && absl::Now() < options_.deadline; ++i) {
    ReplicaClient& source = *sources_[(first_source + i) % sources_.size()];
    if (source.num_ranks() != replica.num_ranks()) continue;  // rank r reads from rank r
    if (FeedFrom(source, reader, result)) {
      reader.keeps_frozen = false;
      FeedFrom(source, reader, result);
    }
    if (result.committed || result.own_error) break;
    telemetry::LogWarning("a replica could not read from another",
                          {{"replica", replica.id()},
                           {"source", source.id()},
                           {"version", options_.policy_version},
                           {"error", result.error.message()}});
  }
  return result;
}

bool StreamFeed::FeedFrom(ReplicaClient& source, const Reader& reader, Result& result) {
  const absl::Time start = absl::Now();
  UpdateAttempt::Options options;
  options.owner = options_.owner;
  options.policy_version = options_.policy_version;
  options.keeps_frozen = reader.keeps_frozen;
  options.base_versions = {reader.base_version};
  options.base_digests = {reader.base_digests};
  options.deadline = options_.deadline;  // if a source hangs, the reader gives it up
  options.blame_grace = options_.blame_grace;
  const StreamRoute route(source.endpoint());
  UpdateAttempt attempt(transport_, route, options, {reader.replica});
  weights::PhaseTimes times;
  bool needs_everything = false;
  absl::Status status = attempt.Begin({""});
  result.table_id = status.ok() ? attempt.table_id(0) : "";
  if (status.ok()) {
    attempt.ExpectStream(digests_);
    status = attempt.Verify(times);
  }
  if (status.ok()) {
    status = attempt.Commit(times);
    result.own_error = !status.ok();
  } else {
    // Nobody is to blame if the live reader could not read. If every bucket verified and the result
    // is still damaged, the source's copy is damaged.
    const absl::Status& blamed = attempt.failures()[0];
    result.own_error = !blamed.ok() && !absl::IsDataLoss(blamed);
    needs_everything = attempt.needs_everything(0);
  }
  result.error = status;
  if (!status.ok()) {
    attempt.Abort(status);  // so that the next attempt may begin
    return needs_everything;
  }
  result.committed = true;
  result.source = source.id();
  result.pause_seconds = attempt.pause_seconds()[0];
  result.rank_digests = attempt.rank_digests()[0];
  result.links = attempt.links();
  telemetry::LogInfo("a replica read the weights of another",
                     {{"replica", reader.replica->id()},
                      {"source", source.id()},
                      {"version", options_.policy_version},
                      {"seconds", absl::ToDoubleSeconds(absl::Now() - start)}});
  return needs_everything;
}

}  // namespace tandem::trainer
