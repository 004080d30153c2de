// A sink of which some tensors are held in an order of their own: whatever way the bytes come, they
// are there, digested, and a base can be read.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/weights/tensor_bytes.h"
#include "common/weights/tensor_sink.h"
#include "common/weights/update_memory.h"
#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using testing::TestModel;

absl::Span<std::byte> BytesOf(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

// Every second tensor backwards, the others as they travel.
class Store : public UpdateMemory {
 public:
  explicit Store(const TestModel& model) {
    for (int i = 0; i < model.manifest().tensors_size(); ++i) {
      live.push_back(model.Bytes(i));
      if (IsPacked(i)) std::reverse(live[i].begin(), live[i].end());
      staged.emplace_back(live[i].size(), '\x5a');
      written.emplace_back(live[i].size(), 0);
    }
  }

  static bool IsPacked(int tensor) { return tensor % 2 == 1; }

  absl::Span<std::byte> Staged(int tensor) override {
    return IsPacked(tensor) ? absl::Span<std::byte>() : BytesOf(staged[tensor]);
  }
  absl::Span<const std::byte> Live(int tensor) const override {
    if (IsPacked(tensor)) return {};
    return BytesOf(const_cast<std::string&>(live[tensor]));
  }
  bool packs() const override { return true; }
  void WriteStaged(int tensor, int64_t offset, absl::Span<const std::byte> from) override {
    std::string& to = staged[tensor];
    for (size_t i = 0; i < from.size(); ++i) {
      to[to.size() - 1 - offset - i] = static_cast<char>(from[i]);
      ++written[tensor][offset + i];
    }
  }
  void ReadStaged(int tensor, int64_t offset, absl::Span<std::byte> to) const override {
    Read(staged[tensor], offset, to);
  }
  absl::Status ReadLive(int tensor, int64_t offset, absl::Span<std::byte> to) const override {
    Read(live[tensor], offset, to);
    return absl::OkStatus();
  }
  Grain GrainOf(int tensor) const override {
    return IsPacked(tensor) ? Grain{.before = 12, .size_bytes = 40} : Grain{};
  }

  std::string InWireOrder(int tensor) const {
    std::string bytes = staged[tensor];
    if (IsPacked(tensor)) std::reverse(bytes.begin(), bytes.end());
    return bytes;
  }

  std::vector<std::string> staged, live;
  std::vector<std::vector<int>> written;  // times, by byte

 private:
  static void Read(const std::string& from, int64_t offset, absl::Span<std::byte> to) {
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<std::byte>(from[from.size() - 1 - offset - i]);
    }
  }
};

class PackedSink : public ::testing::Test {
 protected:
  int64_t Draw(int64_t most) { return 1 + static_cast<int64_t>(random_()) % most; }

  // The bytes of a message in portions, as a group tells of them: from where they stay, in the
  // landing itself or elsewhere, or from a place that the next portion overwrites.
  void Tell(comm::MessageTaker& taker, const std::string& message, std::string& landing) {
    const int way = static_cast<int>(random_() % 3);
    const auto size = static_cast<int64_t>(message.size());
    std::string slot;
    for (int64_t at = 0; at < size;) {
      const int64_t count = std::min(size - at, Draw(20) * 4);
      if (way == 0) {
        landing.replace(at, count, message, at, count);
        taker.Take(at, BytesOf(landing).data() + at, BytesOf(landing).data() + at, count, true);
      } else if (way == 1) {
        const auto* const from = reinterpret_cast<const std::byte*>(message.data()) + at;
        taker.Take(at, from, BytesOf(landing).data() + at, count, true);
      } else {
        slot = message.substr(at, count);
        taker.Take(at, BytesOf(slot).data(), BytesOf(landing).data() + at, count, false);
        slot.assign(count, '?');
      }
      at += count;
    }
  }

  std::mt19937 random_{11};
};

TEST_F(PackedSink, HasTheBytesHoweverTheyCome) {
  const TestModel before = TestModel::Small(), model{before.units, before.dtype, 1.5};
  for (const int64_t bucket_bytes : {8, 40, 104, 400, 4096}) {
    for (int round = 0; round < 20; ++round) {
      ASSERT_OK_AND_ASSIGN(const TransferPlan plan,
                           MakeTransferPlan(model.manifest(), bucket_bytes));
      Store store(before);
      ASSERT_OK_AND_ASSIGN(auto sink, TensorSink::Create(plan, store));
      for (int b = 0; b < static_cast<int>(plan.buckets.size()); ++b) {
        std::string bucket, base;
        for (const auto& piece : plan.buckets[b].pieces()) {
          bucket += model.Bytes(piece.tensor()).substr(piece.tensor_offset(), piece.size_bytes());
          base += before.Bytes(piece.tensor()).substr(piece.tensor_offset(), piece.size_bytes());
        }
        at::Tensor buffer = at::zeros({static_cast<int64_t>(bucket.size())}, at::kByte);
        ASSERT_OK(sink->Collect(b, buffer));
        EXPECT_EQ(std::string(static_cast<const char*>(buffer.const_data_ptr()), bucket.size()),
                  base);
        for (const BucketSpan& span : SpansOf(plan.buckets[b], plan.tensor_bytes)) {
          const std::string message = bucket.substr(span.bucket_offset, span.size_bytes);
          const absl::Span<std::byte> place = sink->Place(b, span);
          const bool keeps = random_() % 2 == 0;
          std::string landing(message.size(), '!');
          if (random_() % 4 > 0) {
            comm::MessageTaker* const taker = sink->Taker(b, span, keeps);
            ASSERT_NE(taker, nullptr);
            if (place.empty()) {
              Tell(*taker, message, landing);
              if (keeps) EXPECT_EQ(landing, message);
            } else {
              const auto* const from = reinterpret_cast<const std::byte*>(message.data());
              taker->Take(0, from, place.data(), span.size_bytes, true);
            }
          } else if (place.empty()) {
            std::copy(message.begin(), message.end(),
                      static_cast<char*>(buffer.mutable_data_ptr()) + span.bucket_offset);
          } else {
            std::copy(BytesOf(bucket).begin() + span.bucket_offset,
                      BytesOf(bucket).begin() + span.bucket_offset + span.size_bytes,
                      place.begin());
          }
          if (place.empty()) ASSERT_OK(sink->Unpack(b, span, buffer));
        }
        ASSERT_OK(sink->Digest(b));
      }
      for (int i = 0; i < model.manifest().tensors_size(); ++i) {
        EXPECT_EQ(store.InWireOrder(i), model.Bytes(i)) << i << ", buckets of " << bucket_bytes;
        std::string bytes = model.Bytes(i);
        EXPECT_EQ(sink->digests()[i].digest(),
                  SumOfHeld(model.manifest().tensors(i), BytesOf(bytes)).Hex());
        if (!Store::IsPacked(i)) continue;
        EXPECT_EQ(store.written[i], std::vector<int>(bytes.size(), 1)) << "once each";
      }
    }
  }
}

TEST_F(PackedSink, TakesTensorsOverFromTheBase) {
  TestModel model = TestModel::Small();
  // Both are more than a portion; the second is packed.
  model.units.push_back({{300, 257}, {257, 300}});
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan, PlanOfManifest(model.manifest()));
  Store store(model);
  ASSERT_OK_AND_ASSIGN(auto sink, TensorSink::Create(plan, store));
  for (int i = 0; i < model.manifest().tensors_size(); ++i) {
    ASSERT_OK(sink->TakeFromBase(i));
    EXPECT_EQ(store.InWireOrder(i), model.Bytes(i)) << i;
    std::string bytes = model.Bytes(i);
    EXPECT_EQ(sink->digests()[i].digest(),
              SumOfHeld(model.manifest().tensors(i), BytesOf(bytes)).Hex());
    if (!Store::IsPacked(i)) continue;
    EXPECT_EQ(store.written[i], std::vector<int>(bytes.size(), 1)) << "once each";
  }
}

// A tensor whose columns come from two senders.
TEST_F(PackedSink, TakesRunsThatLieApart) {
  const TestModel model{{{{3}, {8, 6}}}};
  ASSERT_OK_AND_ASSIGN(TransferPlan plan, PlanOfManifest(model.manifest()));
  const std::string first = model.Bytes(0), all = model.Bytes(1);
  std::vector<std::string> messages;
  for (const int64_t columns_from : {0, 2}) {
    const int64_t columns = columns_from == 0 ? 2 : 4;
    auto& bucket = plan.buckets.emplace_back();
    auto& piece = *bucket.add_pieces();
    piece.set_tensor(1);
    piece.set_tensor_offset(4 * columns_from);
    piece.set_repeat(8);
    piece.set_stride(4 * 6);
    piece.set_size_bytes(4 * 8 * columns);
    bucket.set_size_bytes(piece.size_bytes());
    std::string& message = messages.emplace_back();
    for (int row = 0; row < 8; ++row) {
      message += all.substr(4 * (6 * row + columns_from), 4 * columns);
    }
  }
  Store store(TestModel{model.units, model.dtype, 2});
  ASSERT_OK_AND_ASSIGN(auto sink, TensorSink::Create(plan, store));
  for (int b = 0; b < 2; ++b) {
    const BucketSpan span = WholeBucket(plan.buckets[b]);
    EXPECT_TRUE(sink->Place(b, span).empty());
    EXPECT_EQ(sink->Taker(b, span, true), nullptr);
    const auto size = static_cast<int64_t>(messages[b].size());
    ASSERT_OK(sink->Unpack(b, span, at::from_blob(messages[b].data(), {size}, at::kByte)));
    ASSERT_OK(sink->Digest(b));
  }
  EXPECT_EQ(store.InWireOrder(1), all);
  std::string bytes = all;
  EXPECT_EQ(sink->digests()[1].digest(),
            SumOfHeld(model.manifest().tensors(1), BytesOf(bytes)).Hex());
}

}  // namespace
}  // namespace tandem::weights
