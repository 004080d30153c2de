// tandem-bench-raw: one rank of MeasureRawTransfer(), started by `tandem bench sync`.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/io/atomic_file.h"
#include "common/model/allocator.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/manifest.h"
#include "tools/tandem/bench/raw_baseline.h"

namespace {

constexpr int kRepeats = 5;

struct Work {
  int rank, trainer_ranks, rollouts;
  int64_t size_bytes, bucket_bytes;
  int port;
  std::string result_path;
  bool chain;
  std::string backend;
  bool encrypted;
};

absl::StatusOr<std::unique_ptr<tandem::comm::ProcessGroup>> JoinBy(const std::string& backend,
                                                                   const Work& work,
                                                                   const std::string& name,
                                                                   int rank, int size) {
  tandem::comm::GroupOptions options;
  options.name = name;
  options.rank = rank;
  options.size = size;
  options.rendezvous = {.host = "127.0.0.1", .port = work.port, .prefix = name};
  options.timeout = absl::Minutes(1);
  if (work.encrypted) {
    options.data_plane.encryption = tandem::security::DataPlaneEncryption::kAlways;
    options.rendezvous.secret = "all ranks of a measurement know this";
    options.rendezvous.store_has_secret = false;
  }
  return tandem::comm::CreateGroupOf(backend, options);
}

absl::StatusOr<std::unique_ptr<tandem::comm::ProcessGroup>> Join(const Work& work,
                                                                 const std::string& name, int rank,
                                                                 int size) {
  return JoinBy(work.backend, work, name, rank, size);
}

absl::StatusOr<double> MeasureChain(const Work& work, const tandem::weights::TransferPlan& plan) {
  const int size = work.trainer_ranks + work.rollouts;
  ASSIGN_OR_RETURN(const auto group, Join(work, "raw-chain", work.rank, size));
  // Gloo is measured bare; other backends send like updates.
  const bool as_updates = work.backend != "gloo";
  std::unique_ptr<tandem::comm::ProcessGroup> barrier;
  if (as_updates) {
    ASSIGN_OR_RETURN(barrier, JoinBy("gloo", work, "raw-barrier", work.rank, size));
  }
  tandem::comm::ProcessGroup& meeting = as_updates ? *barrier : *group;
  ASSIGN_OR_RETURN(const double seconds,
                   tandem::bench::MeasureRawChain(plan, *group, meeting, work.trainer_ranks,
                                                  kRepeats, as_updates));
  // Rank 0 serves the store: it leaves last.
  RETURN_IF_ERROR(meeting.Barrier("raw end"));
  return seconds;
}

absl::StatusOr<double> MeasureGatherAndBroadcast(const Work& work,
                                                 const tandem::weights::TransferPlan& plan) {
  std::unique_ptr<tandem::comm::ProcessGroup> trainers, update;
  if (work.rank < work.trainer_ranks) {
    ASSIGN_OR_RETURN(trainers, Join(work, "raw-trainer", work.rank, work.trainer_ranks));
  }
  if (work.rank == 0 || work.rank >= work.trainer_ranks) {
    const int rank = work.rank == 0 ? 0 : work.rank - work.trainer_ranks + 1;
    ASSIGN_OR_RETURN(update, Join(work, "raw-update", rank, work.rollouts + 1));
  }
  ASSIGN_OR_RETURN(const double seconds,
                   tandem::bench::MeasureRawTransfer(plan, trainers.get(), update.get(), kRepeats));
  if (trainers != nullptr) RETURN_IF_ERROR(trainers->Barrier("raw end"));
  if (update != nullptr) RETURN_IF_ERROR(update->Barrier("raw end"));
  return seconds;
}

absl::Status Run(const Work& work) {
  std::unique_ptr<tandem::comm::StoreServer> store;
  if (work.rank == 0) {
    ASSIGN_OR_RETURN(store, tandem::comm::StoreServer::Start({.port = work.port}));
  }
  // One tensor of bytes, cut as the model's stream is.
  tandem::common::v1::Manifest manifest;
  auto* tensor = manifest.add_tensors();
  tensor->set_name("stream");
  tensor->set_dtype("float32");
  tensor->add_shape(work.size_bytes / 4);
  manifest.set_digest(tandem::weights::ManifestDigest(manifest));
  ASSIGN_OR_RETURN(const auto plan, tandem::weights::MakeTransferPlan(manifest, work.bucket_bytes));
  ASSIGN_OR_RETURN(const double seconds,
                   work.chain ? MeasureChain(work, plan) : MeasureGatherAndBroadcast(work, plan));
  if (work.rank > 0) return absl::OkStatus();
  return tandem::io::WriteFileAtomically(work.result_path, absl::StrCat(seconds));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 11) {
    std::fprintf(stderr, "tandem bench sync starts tandem-bench-raw; do not run it directly\n");
    return 2;
  }
  tandem::model::TuneAllocator();
  const absl::Status status = Run({.rank = std::atoi(argv[1]),
                                   .trainer_ranks = std::atoi(argv[2]),
                                   .rollouts = std::atoi(argv[3]),
                                   .size_bytes = std::atoll(argv[4]),
                                   .bucket_bytes = std::atoll(argv[5]),
                                   .port = std::atoi(argv[6]),
                                   .result_path = argv[7],
                                   .chain = std::atoi(argv[8]) != 0,
                                   .backend = argv[9],
                                   .encrypted = std::atoi(argv[10]) != 0});
  if (!status.ok()) std::fprintf(stderr, "tandem-bench-raw: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
