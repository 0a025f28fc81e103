// SPDX-License-Identifier: MIT
// Prints the lines and the progress bar; see report.h.
#include "report.h"

#include <cstdio>

#include <unistd.h>

#include "digits.h"

namespace digits {

Report::Report(ddprun::ProcessGroup& group, const Options& options)
    : group_(group),
      epochs_(options.epochs),
      bar_shown_(group.rank() == 0 && !options.quiet && isatty(STDERR_FILENO) != 0) {}

void Report::draw_bar(int epochs_done) const {
  constexpr std::string_view kFull = "########################################";
  const int filled = static_cast<int>(kFull.size()) * epochs_done / epochs_;
  if (bar_shown_)
    std::fprintf(stderr, "\r[%-*.*s] epoch %d of %d", static_cast<int>(kFull.size()), filled,
                 kFull.data(), epochs_done, epochs_);
}

void Report::erase_bar() const {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
}

void Report::print_epoch(int epoch, double loss, double accuracy, double seconds) {
  loss_ = loss;
  accuracy_ = accuracy;
  erase_bar();
  std::printf("epoch %d: loss=%.9f accuracy=%.4f samples_per_s=%.0f\n", epoch, loss, accuracy,
              static_cast<double>(kTrainingSamples) / seconds);
  std::fflush(stdout);
  draw_bar(epoch + 1);
}

void Report::print_end(const Totals& totals, Hash weights) {
  erase_bar();
  std::printf(
      "rank %d: samples=%zu indices=%016llx steps=%zu bytes_reduced=%lld buckets=%zu "
      "weights=%016llx\n",
      group_.rank(), totals.samples_per_epoch, totals.indices.value(), totals.steps,
      static_cast<long long>(totals.bytes_reduced), totals.buckets, weights.value());
  std::fflush(stdout);
  group_.barrier();  // the line that sums up comes last
  if (group_.rank() != 0) return;
  std::printf("final: world=%d loss=%.9f accuracy=%.4f samples_per_s=%.0f weights=%016llx\n",
              group_.size(), loss_, accuracy_,
              static_cast<double>(kTrainingSamples) * epochs_ / totals.seconds, weights.value());
}

}  // namespace digits
