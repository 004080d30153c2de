// StreamFeed: brings replicas to a version that other replicas have. Each pulls it over gRPC, rank
// by rank, from one of those; the trainer's ranks take no part and no group is created.
//
//   StreamFeed feed(transport, options, sources, digests);
//   for (StreamFeed::Result& result : feed.Run(readers)) Report(result);
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_STREAM_FEED_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_STREAM_FEED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/trainer/publish/replica_client.h"
#include "services/trainer/publish/send_transport.h"
#include "tandem/common/v1/weights.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

using TensorDigests = std::vector<common::v1::TensorDigest>;  // one a tensor, in manifest order

// Single use.
class StreamFeed {
 public:
  struct Options {
    common::v1::WeightOwner owner;  // the trainer
    int64_t policy_version = 0;
    absl::Time deadline;
    absl::Duration blame_grace = absl::Seconds(5);
  };
  struct Reader {
    ReplicaClient* replica = nullptr;
    // Whether it keeps the frozen tensors of its live version, which is:
    bool keeps_frozen = false;
    int64_t base_version = -1;
    std::vector<std::string> base_digests;  // by rank
  };
  struct Result {
    bool committed = false;
    absl::Status error;
    // True: the replica itself failed. False: every source failed, and another feed may work.
    bool own_error = false;
    std::string table_id;  // tables that it received; empty: none
    std::string source;    // id of the replica that fed it
    double pause_seconds = 0;
    std::vector<std::string> rank_digests;
    std::vector<v1::UpdateLink> links;
  };

  // `sources` have the version; `digests` are those of its whole tensors.
  StreamFeed(SendTransport& transport, Options options, std::vector<ReplicaClient*> sources,
             TensorDigests digests);

  // Blocks until each reader has the version or cannot get it. Readers run in parallel, a thread
  // each, which tries one source after another until one succeeds.
  std::vector<Result> Run(const std::vector<Reader>& readers);

 private:
  Result Feed(Reader reader, size_t first_source);
  // From one source; errors go into the result. Returns whether it failed because the reader keeps
  // its frozen tensors, so that it must read everything.
  bool FeedFrom(ReplicaClient& source, const Reader& reader, Result& result);

  SendTransport& transport_;
  const Options options_;
  const std::vector<ReplicaClient*> sources_;
  const TensorDigests digests_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_STREAM_FEED_H_
