// Calls from kernels to the host: printf, and through it assert; memory for malloc. Kernels put packets into a buffer in device memory and
// wait for an answer; a thread answers them while a launch runs.
//
// The structures are those of AMD's device libraries (ockl, hostcall_impl.cl and services.cl).
#include "device_heap.hpp"
#include "state.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

using namespace stand_in;

namespace {

constexpr int LANES = 64, WORDS = 8;
constexpr uint32_t READY   = 1; // of PacketHeader::control: the host has not answered yet
constexpr uint32_t PRINTF  = 2; // of PacketHeader::service
constexpr uint32_t MEMORY  = 3;

struct PacketHeader
{
    uint64_t next;
    uint64_t lanes;
    uint32_t service;
    uint32_t control;
};

struct Payload
{
    uint64_t words[LANES][WORDS];
};

struct PacketBuffer
{
    PacketHeader* headers;
    Payload* payloads;
    void* doorbell;
    uint64_t free_stack;
    uint64_t ready_stack;
    uint64_t index_mask;
};

// amd_signal_t. Without a mailbox kernels send no interrupt.
struct Doorbell
{
    int64_t kind, value;
    uint64_t mailbox;
    uint32_t event, reserved[9];
};

// Parts of the first word of a message: flags, the number of further words in this packet, and the message's number.
constexpr uint64_t BEGINS = 1, ENDS = 2;
constexpr int LENGTH_AT = 5, NUMBER_AT = 8;

std::map<uint64_t, std::vector<uint64_t>> messages; // by number; only the answering thread uses them
uint64_t last_message = 0;

// The words of one message of printf: where to, the format, and the arguments. Strings are padded to whole words.
class PrintfMessage
{
public:
    explicit PrintfMessage(const std::vector<uint64_t>& words) : words_(words) {}

    int print()
    {
        FILE* const target       = take() & 1 ? stderr : stdout;
        const std::string format = take_text();
        int written              = 0;
        for(size_t at = 0; at < format.size();)
        {
            const size_t percent = format.find('%', at);
            const size_t plain   = (percent == std::string::npos ? format.size() : percent) - at;
            written += static_cast<int>(std::fwrite(format.data() + at, 1, plain, target));
            at += plain;
            if(percent == std::string::npos)
                break;
            written += print_value(format, &at, target);
        }
        if(target == stdout && !in_program)
            std::fflush(stdout); // Python has a buffer of its own, and the order should be right
        return written;
    }

private:
    uint64_t take() { return at_ < words_.size() ? words_[at_++] : 0; }

    std::string take_text()
    {
        if(at_ >= words_.size())
            return {};
        const char* const text = reinterpret_cast<const char*>(&words_[at_]);
        const size_t length    = strnlen(text, (words_.size() - at_) * sizeof(uint64_t));
        at_ += length / sizeof(uint64_t) + 1;
        return {text, length};
    }

    // One conversion of the format, with the C library's own printf. Each value has a word.
    int print_value(const std::string& format, size_t* at, FILE* target)
    {
        size_t end = *at + 1;
        std::string conversion = "%";
        while(end < format.size() && std::strchr("-+ #0123456789.*'", format[end]) != nullptr)
        {
            conversion += format[end] == '*' ? std::to_string(static_cast<int>(take())) : std::string(1, format[end]);
            ++end;
        }
        std::string size;
        while(end < format.size() && std::strchr("hljztqL", format[end]) != nullptr)
            size += format[end++];
        const char kind = end < format.size() ? format[end] : '\0';
        *at             = kind == '\0' ? end : end + 1;
        switch(kind)
        {
        case '%': return std::fputc('%', target) == EOF ? 0 : 1;
        case 's': return std::fprintf(target, (conversion + "s").c_str(), take_text().c_str());
        case 'c': return std::fprintf(target, (conversion + "c").c_str(), static_cast<int>(take()));
        case 'p': return std::fprintf(target, (conversion + "p").c_str(), reinterpret_cast<void*>(take()));
        case 'd':
        case 'i': return std::fprintf(target, (conversion + "lld").c_str(), cut_signed(take(), size));
        case 'u':
        case 'o':
        case 'x':
        case 'X': return std::fprintf(target, (conversion + "ll" + kind).c_str(), cut_unsigned(take(), size));
        case 'a':
        case 'A':
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G': {
            const uint64_t word = take();
            double value        = 0;
            std::memcpy(&value, &word, sizeof(value));
            return std::fprintf(target, (conversion + kind).c_str(), value);
        }
        default: return 0; // `n` and unknown ones: nothing is written
        }
    }

    static long long cut_signed(uint64_t word, const std::string& size)
    {
        return size == "hh"   ? static_cast<signed char>(word)
               : size == "h"  ? static_cast<short>(word)
               : size.empty() ? static_cast<int>(word)
                              : static_cast<long long>(word);
    }

    static unsigned long long cut_unsigned(uint64_t word, const std::string& size)
    {
        return size == "hh"   ? static_cast<unsigned char>(word)
               : size == "h"  ? static_cast<unsigned short>(word)
               : size.empty() ? static_cast<unsigned>(word)
                              : word;
    }

    const std::vector<uint64_t>& words_;
    size_t at_ = 0;
};

// A part of a message in one lane's words; the answer is written to its first word.
void answer_printf(uint64_t* words)
{
    const uint64_t head = words[0];
    const uint64_t part = head >> LENGTH_AT & 7;
    const uint64_t number = head & BEGINS ? ++last_message : head >> NUMBER_AT;
    std::vector<uint64_t>& message = messages[number];
    message.insert(message.end(), words + 1, words + 1 + part);
    if(head & ENDS)
    {
        words[0] = static_cast<uint64_t>(PrintfMessage(message).print());
        messages.erase(number);
    }
    else
        words[0] = number << NUMBER_AT | (head & ((uint64_t(1) << NUMBER_AT) - 1) & ~BEGINS);
}

// An address to free, or 0 and the number of bytes to allocate; the answer is the address.
void answer_memory(uint64_t* words, DeviceHeap* heap)
{
    if(heap == nullptr)
        words[0] = 0;
    else if(words[0] != 0)
    {
        heap->release(words[0]);
        words[0] = 0;
    }
    else
        words[0] = heap->allocate(words[1]);
    words[1] = 0;
}

bool answer(PacketBuffer* buffer, DeviceHeap* heap)
{
    uint64_t at = __atomic_exchange_n(&buffer->ready_stack, 0, __ATOMIC_ACQUIRE);
    if(at == 0)
        return false;
    // The last packet is on top: messages are printed in the order of their arrival.
    std::vector<uint64_t> order;
    for(; at != 0; at = buffer->headers[at & buffer->index_mask].next)
        order.insert(order.begin(), at & buffer->index_mask);
    for(const uint64_t index : order)
    {
        PacketHeader& header = buffer->headers[index];
        for(int lane = 0; lane < LANES; ++lane)
            if(header.lanes >> lane & 1)
            {
                if(header.service == PRINTF)
                    answer_printf(buffer->payloads[index].words[lane]);
                else if(header.service == MEMORY)
                    answer_memory(buffer->payloads[index].words[lane], heap);
                else
                    std::memset(buffer->payloads[index].words[lane], 0, 2 * sizeof(uint64_t)); // no function
            }
        __atomic_store_n(&header.control, header.control & ~READY, __ATOMIC_RELEASE);
    }
    return true;
}

struct Answering
{
    std::thread thread;
    std::atomic<bool> ended{false};
};

} // namespace

// The bytes that a buffer of packets needs.
TW_EXPORT uint64_t tilewright_host_calls_bytes(uint64_t packets)
{
    return sizeof(PacketBuffer) + sizeof(Doorbell) + packets * (sizeof(PacketHeader) + sizeof(Payload));
}

// Writes an empty buffer; the number of packets is a power of two. Each wave that runs may hold one.
TW_EXPORT void tilewright_host_calls_write(void* place, uint64_t packets)
{
    auto* const buffer   = static_cast<PacketBuffer*>(place);
    auto* const doorbell = reinterpret_cast<Doorbell*>(buffer + 1);
    std::memset(place, 0, sizeof(PacketBuffer) + sizeof(Doorbell));
    doorbell->kind      = 1; // a signal of the user
    buffer->payloads    = reinterpret_cast<Payload*>(doorbell + 1);
    buffer->headers     = reinterpret_cast<PacketHeader*>(buffer->payloads + packets);
    buffer->doorbell    = doorbell;
    buffer->index_mask  = packets - 1;
    // 0 ends a list, so the first packet has a number above the mask.
    for(uint64_t index = 0; index < packets; ++index)
        buffer->headers[index] = PacketHeader{index == 0 ? 0 : index == 1 ? packets : index - 1, 0, 0, 0};
    buffer->free_stack = packets == 1 ? packets : packets - 1;
}

// The heap of a device: some bytes of its memory. It lives as long as the process.
TW_EXPORT void* tilewright_heap_make(uint64_t start, uint64_t bytes) { return new DeviceHeap(start, bytes); }

// Answers calls until `tilewright_host_calls_end`, in a thread of its own. Without a heap there is no memory.
TW_EXPORT void* tilewright_host_calls_begin(void* place, void* memory)
{
    auto* const answering = new Answering;
    answering->thread     = std::thread([answering, buffer = static_cast<PacketBuffer*>(place), memory] {
        auto* const heap = static_cast<DeviceHeap*>(memory);
        while(!answering->ended)
            if(!answer(buffer, heap))
                std::this_thread::sleep_for(std::chrono::microseconds(20));
        answer(buffer, heap);
    });
    return answering;
}

TW_EXPORT void tilewright_host_calls_end(void* handle)
{
    auto* const answering = static_cast<Answering*>(handle);
    answering->ended      = true;
    answering->thread.join();
    delete answering;
}
