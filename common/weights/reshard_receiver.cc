#include "common/weights/reshard_receiver.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/guarded_words.h"
#include "common/status/status_macros.h"
#include "common/weights/delta_codec.h"

namespace tandem::weights {
namespace {

using Clock = PhaseTimes::Clock;

absl::Status Finish(std::unique_ptr<comm::Work>& work) {
  if (work == nullptr) return absl::OkStatus();
  const absl::Status status = work->Wait();
  work.reset();
  return status;
}

absl::Status FinishAll(std::vector<std::unique_ptr<comm::Work>>& works) {
  absl::Status status;
  for (auto& work : works) status.Update(Finish(work));
  works.clear();
  return status;
}

at::Tensor TensorOf(absl::Span<std::byte> bytes) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte);
}

absl::Span<const std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          static_cast<size_t>(tensor.nbytes())};
}

}  // namespace

absl::StatusOr<at::Tensor> ReshardReceiver::BufferOf(int slot, int64_t bytes) {
  if (static_cast<int>(buffers_.size()) <= slot) buffers_.resize(slot + 1);
  at::Tensor& buffer = buffers_[slot];
  try {
    if (!buffer.defined() || buffer.numel() < bytes) buffer = at::empty({bytes}, at::kByte);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate a bucket of ", bytes, " bytes"));
  }
  return buffer;
}

absl::StatusOr<int> ReshardReceiver::SourceOf(const TransferPlan& plan, const ReceiveLinks& links,
                                              int bucket) {
  const int source = links.fed_by.value_or(plan.buckets[bucket].source());
  if (source >= 0 && source < links.from->size() && source != links.from->rank()) return source;
  return absl::InvalidArgumentError(absl::StrCat(plan.BucketName(bucket), ": its source is rank ",
                                                 source, "; this is rank ", links.from->rank(),
                                                 " of ", links.from->size()));
}

absl::Status ReshardReceiver::Receive(const TransferPlan& plan, const ReceiveLinks& links,
                                      bool delta, BucketSink& sink, PhaseTimes& times) {
  const absl::Status status =
      delta ? ReceiveDeltas(plan, links, sink, times) : ReceiveWhole(plan, links, sink, times);
  if (!status.ok()) buffers_.clear();
  return status;
}

absl::Status ReshardReceiver::ReceiveWhole(const TransferPlan& plan, const ReceiveLinks& links,
                                           BucketSink& sink, PhaseTimes& times) {
  const int count = static_cast<int>(plan.buckets.size());
  const int window = MessagesUnderWay(plan.largest_bucket_bytes);
  // Of a bucket that is under way: the spans, where each arrives, and whether that is its place.
  struct Slot {
    std::vector<BucketSpan> spans;
    std::vector<at::Tensor> landing;
    std::vector<bool> in_place;
    Works arriving;
    Works leaving;
    Clock::time_point posted;
  };
  std::vector<Slot> slots(window);
  const auto post = [&](int b) -> absl::Status {
    Slot& slot = slots[b % window];
    slot.posted = Clock::now();
    slot.spans = SpansOf(plan.buckets[b], plan.tensor_bytes);
    slot.landing.clear();
    slot.in_place.clear();
    ASSIGN_OR_RETURN(const int source, SourceOf(plan, links, b));
    for (const BucketSpan& span : slot.spans) {
      const absl::Span<std::byte> place = sink.Place(b, span);
      slot.in_place.push_back(!place.empty());
      if (place.empty()) {
        ASSIGN_OR_RETURN(const at::Tensor buffer, BufferOf(b % window, plan.largest_bucket_bytes));
        slot.landing.push_back(buffer.narrow(0, span.bucket_offset, span.size_bytes));
      } else {
        slot.landing.push_back(TensorOf(place));
      }
      ASSIGN_OR_RETURN(auto work,
                       links.from->Receive(slot.landing.back(), source, plan.BucketName(b)));
      slot.arriving.push_back(std::move(work));
    }
    return absl::OkStatus();
  };
  for (int b = 0; b < std::min(count, window); ++b) RETURN_IF_ERROR(post(b)) << "phase wire";
  for (int b = 0; b < count; ++b) {
    Slot& slot = slots[b % window];
    const std::vector<BucketSpan> spans = slot.spans;
    const Clock::time_point wait_start = Clock::now();
    RETURN_IF_ERROR(FinishAll(slot.arriving)) << "phase wire, " << plan.BucketName(b);
    Clock::time_point now = times.Waited("wire", slot.posted, wait_start);
    if (links.forward != nullptr) {
      for (const at::Tensor& bytes : slot.landing) {
        ASSIGN_OR_RETURN(auto work,
                         links.forward->Send(bytes, links.forward_to, plan.BucketName(b)));
        slot.leaving.push_back(std::move(work));
      }
    }
    bool uses_buffer = false;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (slot.in_place[i]) continue;
      uses_buffer = true;
      RETURN_IF_ERROR(sink.Unpack(b, spans[i], buffers_[b % window]))
          << "phase unpack, " << plan.BucketName(b);
    }
    now = times.Worked("unpack", now);
    // The next bucket travels while this one is digested, unless its buffer is still read from.
    const bool waits = uses_buffer && links.forward != nullptr;
    Works leaving = std::move(slot.leaving);
    slot.leaving.clear();
    if (!waits && b + window < count) RETURN_IF_ERROR(post(b + window)) << "phase wire";
    RETURN_IF_ERROR(sink.Digest(b)) << "phase verify, " << plan.BucketName(b);
    now = times.Worked("verify", now);
    RETURN_IF_ERROR(FinishAll(leaving)) << "phase forward, " << plan.BucketName(b);
    times.Worked("forward", now);
    if (waits && b + window < count) RETURN_IF_ERROR(post(b + window)) << "phase wire";
  }
  return absl::OkStatus();
}

absl::Status ReshardReceiver::ReceiveDeltas(const TransferPlan& plan, const ReceiveLinks& links,
                                            BucketSink& sink, PhaseTimes& times) {
  const int count = static_cast<int>(plan.buckets.size());
  const int64_t room = MaxEncodedBytes(plan.largest_bucket_bytes);
  // Where deltas are applied, besides the two that are under way.
  ASSIGN_OR_RETURN(const at::Tensor base, BufferOf(2, plan.largest_bucket_bytes));
  std::array<at::Tensor, 2> sizes = {comm::RoomForWords<1>(), comm::RoomForWords<1>()};
  std::array<std::unique_ptr<comm::Work>, 2> announced;
  std::array<Works, 2> leaving;
  std::array<Clock::time_point, 2> posted;
  const auto post = [&](int b) -> absl::Status {
    RETURN_IF_ERROR(FinishAll(leaving[b % 2])) << "phase forward";
    posted[b % 2] = Clock::now();
    ASSIGN_OR_RETURN(const int source, SourceOf(plan, links, b));
    ASSIGN_OR_RETURN(announced[b % 2],
                     links.from->Receive(sizes[b % 2], source, plan.BucketName(b)));
    return absl::OkStatus();
  };
  if (count > 0) RETURN_IF_ERROR(post(0)) << "phase wire";
  for (int b = 0; b < count; ++b) {
    const std::string name = plan.BucketName(b);
    const Clock::time_point wait_start = Clock::now();
    RETURN_IF_ERROR(Finish(announced[b % 2])) << "phase wire, " << name;
    const int64_t coded = comm::ReadGuarded<1>(sizes[b % 2])[0];
    const int64_t bytes = plan.buckets[b].size_bytes();
    if (coded < kDeltaHeaderBytes || coded > MaxEncodedBytes(bytes)) {
      return absl::DataLossError(absl::StrCat("phase wire, ", name, ": a delta of ", coded,
                                              " bytes for a bucket of ", bytes));
    }
    ASSIGN_OR_RETURN(const at::Tensor buffer, BufferOf(b % 2, room));
    at::Tensor delta = buffer.narrow(0, 0, coded);
    ASSIGN_OR_RETURN(const int source, SourceOf(plan, links, b));
    ASSIGN_OR_RETURN(auto arriving, links.from->Receive(delta, source, name));
    RETURN_IF_ERROR(Finish(arriving)) << "phase wire, " << name;
    Clock::time_point now = times.Waited("wire", posted[b % 2], wait_start);
    if (links.forward != nullptr) {
      for (const at::Tensor& bytes : {sizes[b % 2], delta}) {
        ASSIGN_OR_RETURN(auto work, links.forward->Send(bytes, links.forward_to, name));
        leaving[b % 2].push_back(std::move(work));
      }
    }
    if (b + 1 < count) RETURN_IF_ERROR(post(b + 1)) << "phase wire";
    at::Tensor next = base.narrow(0, 0, bytes);
    RETURN_IF_ERROR(sink.Collect(b, next)) << "phase unpack, " << name;
    const auto applied = ApplyDelta(BytesOf(delta), {static_cast<std::byte*>(next.data_ptr()),
                                                     static_cast<size_t>(next.nbytes())});
    RETURN_IF_ERROR(applied.status()) << "phase unpack, " << name;
    RETURN_IF_ERROR(sink.Unpack(b, WholeBucket(plan.buckets[b]), next)) << "phase unpack, " << name;
    now = times.Worked("unpack", now);
    RETURN_IF_ERROR(sink.Digest(b)) << "phase verify, " << name;
    times.Worked("verify", now);
  }
  const Clock::time_point start = Clock::now();
  for (Works& works : leaving) RETURN_IF_ERROR(FinishAll(works)) << "phase forward";
  times.Worked("forward", start);
  return absl::OkStatus();
}

}  // namespace tandem::weights
