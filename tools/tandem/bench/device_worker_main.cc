// tandem-bench-device: one rank of MeasureDeviceTransfer(), started by `tandem bench sync
// --device`. Rank 0 sends. With fewer GPUs than ranks, ranks share GPUs, and each poses as a
// separate host, because NCCL refuses two ranks of one host on a GPU; NCCL then moves the bytes
// through sockets.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "common/model/allocator.h"
#include "common/status/status_macros.h"
#include "common/weights/broadcast_transport.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/device_ops.h"
#include "common/weights/manifest.h"
#include "common/weights/tensor_digests.h"
#include "common/weights/tensor_sink.h"
#include "common/weights/update_memory.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/raw_baseline.h"

namespace tandem::bench {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(2);

struct Work {
  int rank, size;
  std::string device, backend, manifest_path;
  int64_t bucket_bytes;
  int repeats;
  int port;
  std::string result_path;
};

double Median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

using Body = std::function<absl::Status()>;

absl::StatusOr<double> Seconds(int repeats, const Body& before, const Body& body) {
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {  // the first one allocates buffers and connects
    RETURN_IF_ERROR(before());
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(body());
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (i > 0) seconds.push_back(spent.count());
  }
  return Median(std::move(seconds));
}

absl::StatusOr<at::Device> ChooseDevice(const Work& work) {
  if (work.device == "cpu") return at::Device(at::kCPU);
  try {
    if (!at::hasCUDA()) return absl::UnavailableError("--device cuda: this machine has no GPU");
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    const int gpus = guard.deviceCount();
    if (gpus < work.size) {
      setenv("NCCL_HOSTID", absl::StrCat("tandem-bench-", work.rank).c_str(), /*overwrite=*/0);
    }
    const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(work.rank % gpus));
    guard.setDevice(device);
    return device;
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("--device cuda: ", error.what()));
  }
}

// The tensors of a plan, end to end in one buffer.
class ContiguousTensors : public weights::UpdateMemory {
 public:
  // All arguments outlive it.
  ContiguousTensors(const weights::TransferPlan& plan, const at::Tensor& buffer,
                    weights::DeviceOps& ops)
      : plan_(plan), begin_(static_cast<std::byte*>(buffer.data_ptr())), ops_(ops) {
    for (const int64_t bytes : plan.tensor_bytes) starts_.push_back(starts_.back() + bytes);
  }
  weights::DeviceOps& ops() const override { return ops_; }
  absl::Span<std::byte> Staged(int tensor) override {
    return {begin_ + starts_[tensor], static_cast<size_t>(plan_.tensor_bytes[tensor])};
  }
  absl::Span<const std::byte> Live(int) const override { return {}; }

 private:
  const weights::TransferPlan& plan_;
  std::byte* const begin_;
  weights::DeviceOps& ops_;
  std::vector<int64_t> starts_ = {0};  // by tensor
};

// Casts a flat master into the buckets.
class MasterSource : public weights::BucketSource {
 public:
  MasterSource(const weights::TransferPlan& plan, weights::DeviceOps& ops, at::Tensor master,
               weights::WireElement element)
      : ops_(ops), master_(std::move(master)), element_(element) {
    for (const auto& bucket : plan.buckets) {
      starts_.push_back(elements_);
      elements_ += bucket.size_bytes() / weights::WireElementBytes(element);
    }
  }
  absl::Status Start(int bucket, at::Tensor buffer, weights::PhaseTimes& times) override {
    const auto start = weights::PhaseTimes::Clock::now();
    weights::CastRun run;
    run.from = master_.const_data_ptr<float>() + starts_[bucket];
    run.to = static_cast<std::byte*>(buffer.data_ptr());
    run.length = buffer.numel() / weights::WireElementBytes(element_);
    run.from_stride = run.length;
    RETURN_IF_ERROR(ops_.Cast(element_, {run}));
    times.Worked("pack", start);
    return absl::OkStatus();
  }
  absl::Status Finish(int) override { return absl::OkStatus(); }

 private:
  weights::DeviceOps& ops_;
  const at::Tensor master_;
  const weights::WireElement element_;
  int64_t elements_ = 0;
  std::vector<int64_t> starts_;
};

class Rank {
 public:
  Rank(const Work& work, weights::TransferPlan plan, weights::DeviceOps& ops,
       comm::ProcessGroup& group, comm::StoreClient& store)
      : work_(work), plan_(std::move(plan)), ops_(ops), group_(group), store_(store) {}

  absl::StatusOr<nlohmann::json> Measure() {
    element_ = plan_.manifest.tensors(0).dtype() == "float32" ? weights::WireElement::kFloat32
                                                              : weights::WireElement::kBfloat16;
    nlohmann::json result = {{"device", ops_.device().str()}};
    ASSIGN_OR_RETURN(result["seconds"], work_.rank == 0 ? Send() : Receive());
    ASSIGN_OR_RETURN(
        result["raw_seconds"],
        bench::MeasureRawTransfer(plan_, nullptr, &group_, work_.repeats, ops_.device()));
    if (work_.rank == 0) RETURN_IF_ERROR(MeasureAlone(result));
    RETURN_IF_ERROR(group_.Barrier("end"));  // rank 0 serves the store: it leaves last
    return result;
  }

 private:
  at::TensorOptions Options(at::ScalarType type) const {
    return at::TensorOptions(type).device(ops_.device());
  }

  int64_t elements() const { return plan_.total_bytes / weights::WireElementBytes(element_); }

  absl::StatusOr<double> Send() {
    at::manual_seed(7);
    master_ = at::randn({elements()}, Options(at::kFloat));
    MasterSource source(plan_, ops_, master_, element_);
    weights::BroadcastTransport transport(ops_);
    std::vector<weights::TensorDigest> digests;
    ASSIGN_OR_RETURN(const double seconds,
                     Seconds(
                         work_.repeats, [this] { return group_.Barrier("begin"); },
                         [&]() -> absl::Status {
                           weights::PhaseTimes times;
                           ASSIGN_OR_RETURN(digests, transport.Send(plan_, group_, source, times));
                           return group_.Barrier("end");
                         }));
    RETURN_IF_ERROR(store_.Set("digest", weights::ModelDigest(digests)));
    return seconds;
  }

  absl::StatusOr<double> Receive() {
    const at::Tensor arena = at::zeros({plan_.total_bytes}, Options(at::kByte));
    ContiguousTensors memory(plan_, arena, ops_);
    weights::BroadcastTransport transport(ops_);
    std::string digest;
    ASSIGN_OR_RETURN(const double seconds,
                     Seconds(
                         work_.repeats, [this] { return group_.Barrier("begin"); },
                         [&]() -> absl::Status {
                           weights::PhaseTimes times;
                           ASSIGN_OR_RETURN(auto sink, weights::TensorSink::Create(plan_, memory));
                           RETURN_IF_ERROR(transport.Receive(plan_, group_, *sink, times));
                           digest = weights::ModelDigest(sink->digests());
                           return group_.Barrier("end");
                         }));
    ASSIGN_OR_RETURN(const std::string sent, store_.Get("digest", kTimeout));
    if (digest == sent) return seconds;
    return absl::DataLossError(absl::StrCat("digest ", digest, " received, ", sent, " sent"));
  }

  // One process has the device for itself: the others wait.
  absl::Status MeasureAlone(nlohmann::json& result) {
    const auto entered = ops_.Enter();
    ASSIGN_OR_RETURN(const at::Tensor wire, ops_.Buffer(plan_.total_bytes));
    ASSIGN_OR_RETURN(const at::Tensor copy, ops_.Buffer(plan_.total_bytes));
    auto* const bytes = static_cast<std::byte*>(wire.data_ptr());
    const Body nothing = [] { return absl::OkStatus(); };
    weights::CastRun cast;
    cast.from = master_.const_data_ptr<float>();
    cast.to = bytes;
    cast.length = cast.from_stride = elements();
    ASSIGN_OR_RETURN(result["pack_seconds"], Seconds(work_.repeats, nothing, [&]() -> absl::Status {
                       RETURN_IF_ERROR(ops_.Cast(element_, {cast}));
                       return ops_.Synchronize();
                     }));
    weights::DigestRun digest;
    digest.bytes = bytes;
    digest.row_bytes = plan_.total_bytes;
    ASSIGN_OR_RETURN(result["digest_seconds"], Seconds(work_.repeats, nothing, [&] {
                       weights::DigestSum sum;
                       return ops_.Digest({digest}, {&sum, 1});
                     }));
    weights::CopyRun run;
    run.from = bytes;
    run.to = static_cast<std::byte*>(copy.data_ptr());
    run.size = plan_.total_bytes;
    ASSIGN_OR_RETURN(result["copy_seconds"], Seconds(work_.repeats, nothing, [&]() -> absl::Status {
                       RETURN_IF_ERROR(ops_.Copy({run}));
                       return ops_.Synchronize();
                     }));
    return absl::OkStatus();
  }

  const Work& work_;
  const weights::TransferPlan plan_;
  weights::DeviceOps& ops_;
  comm::ProcessGroup& group_;
  comm::StoreClient& store_;
  weights::WireElement element_ = weights::WireElement::kFloat32;
  at::Tensor master_;  // of rank 0
};

absl::StatusOr<weights::TransferPlan> ReadPlan(const Work& work) {
  std::ifstream file(work.manifest_path, std::ios::binary);
  weights::Manifest manifest;
  if (!manifest.ParseFromIstream(&file)) {
    return absl::DataLossError(absl::StrCat(work.manifest_path, ": no manifest"));
  }
  return weights::MakeTransferPlan(std::move(manifest), work.bucket_bytes);
}

absl::Status Run(const Work& work) {
  ASSIGN_OR_RETURN(const at::Device device, ChooseDevice(work));
  ASSIGN_OR_RETURN(auto ops, weights::CreateDeviceOps(device));
  ASSIGN_OR_RETURN(weights::TransferPlan plan, ReadPlan(work));
  std::unique_ptr<comm::StoreServer> server;
  if (work.rank == 0) {
    ASSIGN_OR_RETURN(server, comm::StoreServer::Start({.port = work.port}));
  }
  comm::GroupOptions options;
  options.name = "update";
  options.family = "update";
  options.rank = work.rank;
  options.size = work.size;
  options.rendezvous = {.host = "127.0.0.1", .port = work.port, .prefix = "bench"};
  options.timeout = kTimeout;
  ASSIGN_OR_RETURN(auto group, comm::CreateGroupOf(work.backend, options));
  ASSIGN_OR_RETURN(auto store, comm::StoreClient::Connect(options.rendezvous, kTimeout));
  Rank rank(work, std::move(plan), *ops, *group, *store);
  ASSIGN_OR_RETURN(const nlohmann::json result, rank.Measure());
  if (work.rank > 0) return absl::OkStatus();
  return io::WriteFileAtomically(work.result_path, io::JsonText(result));
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  if (argc != 10) {
    std::fprintf(stderr,
                 "tandem bench sync --device starts tandem-bench-device; do not run it directly\n");
    return 2;
  }
  tandem::model::TuneAllocator();
  const tandem::bench::Work work{.rank = std::atoi(argv[1]),
                                 .size = std::atoi(argv[2]),
                                 .device = argv[3],
                                 .backend = argv[4],
                                 .manifest_path = argv[5],
                                 .bucket_bytes = std::atoll(argv[6]),
                                 .repeats = std::atoi(argv[7]),
                                 .port = std::atoi(argv[8]),
                                 .result_path = argv[9]};
  const absl::Status status = tandem::bench::Run(work);
  if (!status.ok()) {
    std::fprintf(stderr, "tandem-bench-device rank %d: %s\n", work.rank, status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
