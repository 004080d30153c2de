#include "common/weights/broadcast_transport.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/wait_on_host.h"
#include "common/status/status_macros.h"
#include "common/weights/tensor_digests.h"

namespace tandem::weights {
namespace {

using Clock = PhaseTimes::Clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// A broadcast that is on its way.
struct Flight {
  std::unique_ptr<comm::Work> work;
  Clock::time_point start;
};

absl::Status Launch(const TransferPlan& plan, comm::ProcessGroup& group, int bucket,
                    at::Tensor buffer, Flight& flight, PhaseTimes& times) {
  flight.start = Clock::now();
  ASSIGN_OR_RETURN(flight.work, group.Broadcast(std::move(buffer), 0, plan.BucketName(bucket)));
  times.Add("wire", 0,
            Seconds(Clock::now() - flight.start));  // its busy time is counted when it lands
  return absl::OkStatus();
}

absl::Status Land(const comm::ProcessGroup& group, Flight& flight, PhaseTimes& times) {
  const Clock::time_point wait_start = Clock::now();
  RETURN_IF_ERROR(comm::WaitOnHost(group, *flight.work));
  times.Waited("wire", flight.start, wait_start);
  flight.work.reset();
  return absl::OkStatus();
}

}  // namespace

absl::Status BroadcastTransport::MakeBuffers(int64_t bytes) {
  for (at::Tensor& buffer : buffers_) RETURN_IF_ERROR(Provide(ops_, bytes, buffer));
  return absl::OkStatus();
}

at::Tensor BroadcastTransport::Buffer(const TransferPlan& plan, int bucket) const {
  return buffers_[bucket % 2].narrow(0, 0, plan.buckets[bucket].size_bytes());
}

absl::StatusOr<std::vector<TensorDigest>> BroadcastTransport::Send(const TransferPlan& plan,
                                                                   comm::ProcessGroup& group,
                                                                   BucketSource& source,
                                                                   PhaseTimes& times) {
  const auto entered = ops_.Enter();
  auto digests = SendBuckets(plan, group, source, times);
  // Broadcasts in flight may still use them; the next update gets others.
  if (!digests.ok()) buffers_ = {};
  return digests;
}

absl::StatusOr<std::vector<TensorDigest>> BroadcastTransport::SendBuckets(const TransferPlan& plan,
                                                                          comm::ProcessGroup& group,
                                                                          BucketSource& source,
                                                                          PhaseTimes& times) {
  RETURN_IF_ERROR(MakeBuffers(plan.largest_bucket_bytes));
  std::vector<DigestSum> digests(plan.manifest.tensors_size());
  const int count = static_cast<int>(plan.buckets.size());
  std::array<Flight, 2> flights;
  std::array<Clock::time_point, 2> gather_start;
  const auto start = [&](int bucket) -> absl::Status {
    gather_start[bucket % 2] = Clock::now();
    const double before = times.exposed_sum();
    RETURN_IF_ERROR(source.Start(bucket, Buffer(plan, bucket), times));
    const double packing = times.exposed_sum() - before;
    times.Add("gather", 0, Seconds(Clock::now() - gather_start[bucket % 2]) - packing);
    return absl::OkStatus();
  };

  if (count > 0) {
    RETURN_IF_ERROR(start(0));
  }
  for (int b = 0; b < count; ++b) {
    const Clock::time_point wait_start = Clock::now();
    RETURN_IF_ERROR(source.Finish(b)) << "phase gather, " << plan.BucketName(b);
    times.Waited("gather", gather_start[b % 2], wait_start);
    // The next broadcast is queued before the last one is waited for, so that the wire never idles.
    RETURN_IF_ERROR(Launch(plan, group, b, Buffer(plan, b), flights[b % 2], times)) << "phase wire";
    if (b > 0) {
      RETURN_IF_ERROR(Land(group, flights[(b - 1) % 2], times)) << "phase wire";
    }
    if (b + 1 < count) {
      RETURN_IF_ERROR(start(b + 1)) << "phase gather, " << plan.BucketName(b + 1);
    }
    const Clock::time_point digest_start = Clock::now();
    const auto* bytes = static_cast<const std::byte*>(buffers_[b % 2].data_ptr());
    std::vector<DigestRun> runs;
    for (const auto& piece : plan.buckets[b].pieces()) {
      DigestRun& run = runs.emplace_back();
      run.bytes = bytes + piece.bucket_offset();
      run.offset = piece.tensor_offset();
      run.row_bytes = piece.size_bytes();
      run.slot = piece.tensor();
    }
    RETURN_IF_ERROR(ops_.Digest(runs, absl::MakeSpan(digests)))
        << "phase verify, " << plan.BucketName(b);
    times.Worked("verify", digest_start);
  }
  if (count > 0) {
    RETURN_IF_ERROR(Land(group, flights[(count - 1) % 2], times)) << "phase wire";
  }
  return MakeTensorDigests(plan.manifest, digests);
}

absl::Status BroadcastTransport::Receive(const TransferPlan& plan, comm::ProcessGroup& group,
                                         BucketSink& sink, PhaseTimes& times, LinkTimes* links) {
  const auto entered = ops_.Enter();
  const absl::Status status = ReceiveBuckets(plan, group, sink, times, links);
  if (!status.ok()) buffers_ = {};
  return status;
}

absl::Status BroadcastTransport::ReceiveBuckets(const TransferPlan& plan, comm::ProcessGroup& group,
                                                BucketSink& sink, PhaseTimes& times,
                                                LinkTimes* links) {
  RETURN_IF_ERROR(MakeBuffers(plan.largest_bucket_bytes));
  const int count = static_cast<int>(plan.buckets.size());
  std::array<Flight, 2> flights;
  for (int b = 0; b < std::min(count, 2); ++b) {
    RETURN_IF_ERROR(Launch(plan, group, b, Buffer(plan, b), flights[b], times)) << "phase wire";
  }
  for (int b = 0; b < count; ++b) {
    RETURN_IF_ERROR(Land(group, flights[b % 2], times)) << "phase wire";
    const Clock::time_point unpack_start = Clock::now();
    if (links != nullptr) {
      links->Arrived(0, plan.buckets[b].size_bytes(), flights[b % 2].start, unpack_start);
    }
    RETURN_IF_ERROR(sink.Unpack(b, WholeBucket(plan.buckets[b]), Buffer(plan, b)))
        << "phase unpack, " << plan.BucketName(b);
    times.Worked("unpack", unpack_start);
    if (b + 2 < count) {
      RETURN_IF_ERROR(Launch(plan, group, b + 2, Buffer(plan, b + 2), flights[b % 2], times))
          << "phase wire";
    }
    const Clock::time_point digest_start = Clock::now();
    RETURN_IF_ERROR(sink.Digest(b)) << "phase verify, " << plan.BucketName(b);
    times.Worked("verify", digest_start);
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
