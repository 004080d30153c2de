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

// Distance between messages that are copied together: the widest access of a device's copies.
constexpr int64_t kMessageAlignment = 64;

int64_t Aligned(int64_t bytes) {
  return (bytes + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
}

// A group that breaks between two operations refuses the next one. Returns the code of what broke
// it, by which callers decide whether to try again; the message has it anyway.
absl::Status WithCauseOf(const comm::ProcessGroup& group, const absl::Status& status) {
  const absl::Status broken = group.status();
  if (!absl::IsFailedPrecondition(status) || broken.ok()) return status;
  return absl::Status(broken.code(), status.message());
}

}  // namespace

int64_t BroadcastSplit::SentBytes() const {
  int64_t bytes = 0;
  const auto add = [&](const Cuts& cuts) {
    for (const BucketCut& cut : *cuts) bytes += cut.size_bytes;
  };
  add(all);
  for (const Part& part : parts) add(part.cuts);
  return bytes;
}

// Finds a bucket's messages in its buffer, or copies them together.
class BroadcastTransport::Packer {
 public:
  Packer(DeviceOps& ops, at::Tensor bucket, at::Tensor& packed)
      : ops_(ops), bucket_(std::move(bucket)), packed_(packed) {}

  absl::Status MakeRoom(int bucket, const BroadcastSplit& split) {
    int64_t room = 0;
    const auto add = [&](const BucketCut& cut) {
      if (!cut.IsRange()) room += Aligned(cut.size_bytes);
    };
    add((*split.all)[bucket]);
    for (const BroadcastSplit::Part& part : split.parts) add((*part.cuts)[bucket]);
    return room == 0 ? absl::OkStatus() : Provide(ops_, room, packed_);
  }

  // Valid after Copy().
  at::Tensor MessageOf(const BucketCut& cut) {
    if (cut.IsRange()) return bucket_.narrow(0, cut.runs[0].offset, cut.size_bytes);
    const at::Tensor message = packed_.narrow(0, used_, cut.size_bytes);
    used_ += Aligned(cut.size_bytes);
    const auto* const from = static_cast<const std::byte*>(bucket_.const_data_ptr());
    auto* to = static_cast<std::byte*>(message.data_ptr());
    for (const BucketRuns& runs : cut.runs) {
      runs_.push_back(
          {from + runs.offset, to, runs.size_bytes, runs.repeat, runs.stride, runs.size_bytes});
      to += runs.size_bytes * runs.repeat;
    }
    return message;
  }

  absl::Status Copy() { return runs_.empty() ? absl::OkStatus() : ops_.Copy(runs_); }

 private:
  DeviceOps& ops_;
  const at::Tensor bucket_;
  at::Tensor& packed_;
  int64_t used_ = 0;
  std::vector<CopyRun> runs_;
};

absl::Status BroadcastTransport::Launch(const TransferPlan& plan, comm::ProcessGroup& group,
                                        int bucket, const BroadcastSplit* split, Flight& flight,
                                        PhaseTimes& times) {
  at::Tensor for_all;  // undefined: nothing
  int first_tensor = 0;
  std::vector<std::pair<int, at::Tensor>> parts;  // by receiver
  if (split == nullptr) {
    for_all = Buffer(plan, bucket);
    first_tensor = plan.buckets[bucket].pieces(0).tensor();
  } else {
    const Clock::time_point pack_start = Clock::now();
    Packer packer(ops_, Buffer(plan, bucket), packed_[bucket % 2]);
    RETURN_IF_ERROR(packer.MakeRoom(bucket, *split)) << "phase pack";
    const BucketCut& all = (*split->all)[bucket];
    if (!all.runs.empty()) for_all = packer.MessageOf(all);
    first_tensor = all.first_tensor;
    for (const BroadcastSplit::Part& part : split->parts) {
      const BucketCut& cut = (*part.cuts)[bucket];
      if (!cut.runs.empty()) parts.emplace_back(part.to, packer.MessageOf(cut));
    }
    RETURN_IF_ERROR(packer.Copy()) << "phase pack";
    times.Worked("pack", pack_start);
  }
  flight.start = Clock::now();
  if (for_all.defined()) {
    ASSIGN_OR_RETURN(
        auto work, group.Broadcast(std::move(for_all), 0, TagForAll(plan.manifest, first_tensor)));
    flight.works.push_back(std::move(work));
  }
  for (auto& [to, bytes] : parts) {
    ASSIGN_OR_RETURN(auto work, group.Send(std::move(bytes), to, plan.BucketName(bucket)));
    flight.works.push_back(std::move(work));
  }
  times.Add("wire", 0,
            Seconds(Clock::now() - flight.start));  // its busy time is counted when it lands
  return absl::OkStatus();
}

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
                                                                   PhaseTimes& times,
                                                                   const BroadcastSplit* split) {
  const auto entered = ops_.Enter();
  auto digests = SendBuckets(plan, group, source, times, split);
  if (digests.ok()) return digests;
  // Messages in flight may still use them; the next update gets others.
  DropBuffers();
  return WithCauseOf(group, digests.status());
}

absl::StatusOr<std::vector<TensorDigest>> BroadcastTransport::SendBuckets(
    const TransferPlan& plan, comm::ProcessGroup& group, BucketSource& source, PhaseTimes& times,
    const BroadcastSplit* split) {
  RETURN_IF_ERROR(MakeBuffers(plan.largest_bucket_bytes));
  std::vector<DigestSum> digests(plan.manifest.tensors_size());
  const int count = static_cast<int>(plan.buckets.size());
  std::array<Flight, 2> flights;
  std::array<Clock::time_point, 2> gather_start;
  const auto land = [&](int bucket) -> absl::Status {
    Flight& flight = flights[bucket % 2];
    const Clock::time_point wait_start = Clock::now();
    RETURN_IF_ERROR(comm::FinishAll(&group, flight.works))
        << "phase wire, " << plan.BucketName(bucket);
    times.Waited("wire", flight.start, wait_start);
    return absl::OkStatus();
  };
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
    // The next bucket is queued before the last one is waited for, so that the wire never idles.
    RETURN_IF_ERROR(Launch(plan, group, b, split, flights[b % 2], times))
        << "phase wire, " << plan.BucketName(b);
    if (b > 0) {
      RETURN_IF_ERROR(land(b - 1));
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
    RETURN_IF_ERROR(land(count - 1));
  }
  return MakeTensorDigests(plan.manifest, digests);
}

// Receives, stores and forwards the buckets of one update; bucket b is in buffer b % 2.
class BroadcastTransport::Receiver {
 public:
  Receiver(BroadcastTransport& transport, const TransferPlan& plan, comm::ProcessGroup& group,
           const BroadcastChain& chain, PhaseTimes& times)
      : transport_(transport), plan_(plan), group_(group), chain_(chain), times_(times) {}

  absl::Status Run(BucketSink& sink, LinkTimes* links) {
    RETURN_IF_ERROR(Post(0));
    for (int b = 0; b < count(); ++b) {
      if (Forwards(b)) {
        RETURN_IF_ERROR(Forward(b));
      }
      RETURN_IF_ERROR(Post(b));
      RETURN_IF_ERROR(Land(b, links));
      const Clock::time_point unpack_start = Clock::now();
      RETURN_IF_ERROR(sink.Unpack(b, WholeBucket(plan_.buckets[b]), transport_.Buffer(plan_, b)))
          << "phase unpack, " << plan_.BucketName(b);
      times_.Worked("unpack", unpack_start);
      RETURN_IF_ERROR(Post(b + 1));
      const Clock::time_point digest_start = Clock::now();
      RETURN_IF_ERROR(sink.Digest(b)) << "phase verify, " << plan_.BucketName(b);
      times_.Worked("verify", digest_start);
    }
    for (int b = std::max(0, count() - 2); b < count(); ++b) {
      RETURN_IF_ERROR(FinishForward(b));
    }
    return absl::OkStatus();
  }

 private:
  int count() const { return static_cast<int>(plan_.buckets.size()); }
  bool ToPart(int b) const { return plan_.buckets[b].source() == kToPart; }
  bool Forwards(int b) const { return chain_.forward_to != 0 && ToPart(b); }

  // Posts what may be posted while the buckets before `unpacked` are unpacked: two buckets beyond
  // those, but none after one that still has to be forwarded.
  absl::Status Post(int unpacked) {
    while (posted_ < std::min(count(), unpacked + 2) &&
           (posted_ == 0 || !Forwards(posted_ - 1) || posted_ == forwarded_)) {
      const int b = posted_;
      RETURN_IF_ERROR(FinishForward(b - 2));  // which leaves from the same buffer
      Message& message = messages_[b % 2];
      message.posted = Clock::now();
      const at::Tensor buffer = transport_.Buffer(plan_, b);
      auto work = ToPart(b) ? group_.Receive(buffer, chain_.fed_by, plan_.BucketName(b))
                            : group_.Broadcast(
                                  buffer, 0,
                                  TagForAll(plan_.manifest, plan_.buckets[b].pieces(0).tensor()));
      RETURN_IF_ERROR(work.status()) << "phase wire, " << plan_.BucketName(b);
      message.arriving = *std::move(work);
      times_.Add("wire", 0, Seconds(Clock::now() - message.posted));
      ++posted_;
    }
    return absl::OkStatus();
  }

  absl::Status Forward(int b) {
    Message& message = messages_[b % 2];
    const Clock::time_point wait_start = Clock::now();
    // Makes a stream wait, so that the send can be queued; other groups have the bytes then.
    RETURN_IF_ERROR(message.arriving->Wait()) << "phase wire, " << plan_.BucketName(b);
    const Clock::time_point now = times_.Waited("wire", message.posted, wait_start);
    message.waited = true;
    ASSIGN_OR_RETURN(message.leaving, group_.Send(transport_.Buffer(plan_, b), chain_.forward_to,
                                                  plan_.BucketName(b)));
    times_.Worked("forward", now);
    forwarded_ = b + 1;
    return absl::OkStatus();
  }

  absl::Status FinishForward(int b) {
    if (b < 0) return absl::OkStatus();
    std::unique_ptr<comm::Work>& leaving = messages_[b % 2].leaving;
    if (leaving == nullptr) return absl::OkStatus();
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(comm::WaitOnHost(group_, *leaving)) << "phase forward, " << plan_.BucketName(b);
    leaving.reset();
    times_.Worked("forward", start);
    return absl::OkStatus();
  }

  absl::Status Land(int b, LinkTimes* links) {
    Message& message = messages_[b % 2];
    const Clock::time_point wait_start = Clock::now();
    RETURN_IF_ERROR(comm::WaitOnHost(group_, *message.arriving))
        << "phase wire, " << plan_.BucketName(b);
    // What Forward() has waited for is counted.
    const Clock::time_point now =
        times_.Waited("wire", message.waited ? wait_start : message.posted, wait_start);
    if (links != nullptr) {
      links->Arrived(ToPart(b) ? chain_.fed_by : 0, plan_.buckets[b].size_bytes(), message.posted,
                     now);
    }
    message.waited = false;
    message.arriving.reset();
    return absl::OkStatus();
  }

  struct Message {
    std::unique_ptr<comm::Work> arriving;
    std::unique_ptr<comm::Work> leaving;  // also of the buffer's bucket before
    Clock::time_point posted;
    bool waited = false;
  };

  BroadcastTransport& transport_;
  const TransferPlan& plan_;
  comm::ProcessGroup& group_;
  const BroadcastChain chain_;
  PhaseTimes& times_;
  std::array<Message, 2> messages_;
  int posted_ = 0;     // buckets
  int forwarded_ = 0;  // buckets up to the last one whose send was issued
};

absl::Status BroadcastTransport::Receive(const TransferPlan& plan, comm::ProcessGroup& group,
                                         BucketSink& sink, PhaseTimes& times, LinkTimes* links,
                                         const BroadcastChain& chain) {
  const auto entered = ops_.Enter();
  absl::Status status = MakeBuffers(plan.largest_bucket_bytes);
  if (status.ok()) status = Receiver(*this, plan, group, chain, times).Run(sink, links);
  if (status.ok()) return status;
  DropBuffers();
  return WithCauseOf(group, status);
}

}  // namespace tandem::weights
