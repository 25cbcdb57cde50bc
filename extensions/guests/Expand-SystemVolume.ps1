# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

#Requires -Version 5.1
#Requires -RunAsAdministrator
#Requires -Modules Storage

<#
.SYNOPSIS
Lets the system volume of a Windows guest have the space of a grown disk.

.DESCRIPTION
NO WINDOWS HAS RUN THIS SCRIPT YET. It was only read, and parsed. Try it with a copy of the disk first.

The volume of Windows (C:) is extended to the end of its disk. If Windows' recovery partition lies behind it, that is
removed and made again at the end of the disk: Windows RE is disabled, which puts it on C:, and enabled again, which
puts it into the new partition. Nothing else that was in the old partition is kept.

Everything else is refused before anything changes: other partitions behind C:, a recovery partition that Windows RE
does not use or that has files outside of \Recovery\WindowsRE, dynamic disks, file systems other than NTFS, volumes that BitLocker
encrypts or decrypts at the moment.

A second run changes nothing. Less than 16 MiB is left as it is. What a moved recovery partition was is noted in
HKLM:\SOFTWARE\flexdisk\Expand-SystemVolume until all is done, so that the next run ends the work of one that was
stopped. Windows starts in between, too: it does not need that partition for that.

.PARAMETER SuspendBitLocker
Suspends BitLocker on C: until Windows has started again. Without it, a protected volume is refused.

.EXAMPLE
.\Expand-SystemVolume.ps1 -WhatIf

Shows what would be done.

.EXAMPLE
.\Expand-SystemVolume.ps1 -Confirm:$false

Does it without a question.
#>
[CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
param(
    [switch] $SuspendBitLocker
)

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$Least = 16MB
$RecoveryGpt = 'de94bba4-06d1-4d40-a16a-bfd50179d6ac'
$RecoveryMbr = 0x27
$RecoveryLabel = 'Windows RE tools'
$DataGpt = 'ebd0a0a2-b9e5-4433-87c0-68b6b72699c7'
$DataMbr = 0x07
$RecordKey = 'SOFTWARE\flexdisk\Expand-SystemVolume'
$Image = Join-Path $env:SystemRoot 'System32\Recovery\Winre.wim'

function Invoke-Program {
    param([string] $Name, [string[]] $Arguments)
    $output = & (Join-Path $env:SystemRoot "System32\$Name.exe") @Arguments | Out-String
    if ($LASTEXITCODE -ne 0) {
        throw "$Name $($Arguments -join ' ') ended with status ${LASTEXITCODE}: $($output.Trim())"
    }
    return $output
}

# Whether Windows RE is enabled, in this partition or, without one, anywhere. The words of reagentc are translated, the
# path is not.
function Test-RecoveryUse {
    param($Partition)
    $where = 'harddisk\d+\\partition\d+\\'
    if ($null -ne $Partition) {
        $where = "harddisk$($Partition.DiskNumber)\\partition$($Partition.PartitionNumber)\\"
    }
    return (Invoke-Program 'reagentc' @('/info')) -match $where
}

function Test-Type {
    param($Partition, [string] $Gpt, [int] $Mbr)
    if ("$($Partition.GptType)") {
        return "$($Partition.GptType)".Trim('{', '}') -eq $Gpt
    }
    return $Partition.MbrType -eq $Mbr
}

function Test-RecoveryType {
    param($Partition)
    return Test-Type -Partition $Partition -Gpt $RecoveryGpt -Mbr $RecoveryMbr
}

# Whether a run that was stopped has made this partition. It may not have got its type or its file system yet.
function Test-Made {
    param($Partition, $Record)
    if ($null -eq $Partition -or $null -eq $Record) {
        return $false
    }
    $volume = $Partition | Get-Volume -ErrorAction SilentlyContinue
    $label = if ($null -eq $volume) { '' } else { "$($volume.FileSystemLabel)" }
    return $Partition.Offset -eq $Record.Target -and $Partition.Size -eq $Record.Size -and $label -in '', $RecoveryLabel
}

# Whole MiB, downwards. PowerShell would round a division.
function Get-WholeMiB {
    param([long] $Bytes)
    return [long] ($Bytes - ($Bytes % 1MB))
}

function Get-PartitionBehind {
    param($Partition)
    return @(
        Get-Partition -DiskNumber $Partition.DiskNumber |
            Where-Object { $_.Offset -gt $Partition.Offset } |
            Sort-Object -Property Offset
    )
}

function Read-Record {
    $key = [Microsoft.Win32.Registry]::LocalMachine.OpenSubKey($RecordKey)
    if ($null -eq $key) {
        return $null
    }
    try {
        return [pscustomobject] @{
            Disk = [string] $key.GetValue('Disk')
            OldOffset = [long] $key.GetValue('OldOffset')
            Target = [long] $key.GetValue('Target')
            Size = [long] $key.GetValue('Size')
        }
    }
    finally {
        $key.Dispose()
    }
}

function Write-Record {
    param([string] $Disk, [long] $OldOffset, [long] $Target, [long] $Size)
    $key = [Microsoft.Win32.Registry]::LocalMachine.CreateSubKey($RecordKey)
    try {
        $key.SetValue('Size', $Size, [Microsoft.Win32.RegistryValueKind]::QWord)
        $key.SetValue('Target', $Target, [Microsoft.Win32.RegistryValueKind]::QWord)
        $key.SetValue('OldOffset', $OldOffset, [Microsoft.Win32.RegistryValueKind]::QWord)
        $key.SetValue('Disk', $Disk, [Microsoft.Win32.RegistryValueKind]::String)
        $key.Flush() # it must be there after a reset
    }
    finally {
        $key.Dispose()
    }
}

function Clear-Record {
    [Microsoft.Win32.Registry]::LocalMachine.DeleteSubKeyTree($RecordKey, $false)
}

function Invoke-DiskPart {
    param([int] $DiskNumber, [string[]] $Commands)
    $file = [System.IO.Path]::GetTempFileName()
    try {
        Set-Content -LiteralPath $file -Value (@("select disk $DiskNumber") + $Commands) -Encoding Ascii -Confirm:$false
        $null = Invoke-Program 'diskpart' @('/s', $file)
    }
    finally {
        Remove-Item -LiteralPath $file -Confirm:$false
    }
}

# This and the next are the steps of Microsoft's KB5028997. Only diskpart can set these attributes and a type of an MBR,
# and remove a partition that has them.
function Invoke-RecoveryRemoval {
    param($Partition)
    $commands = @("select partition $($Partition.PartitionNumber)", 'delete partition override')
    Invoke-DiskPart $Partition.DiskNumber $commands
}

function Invoke-RecoveryCreation {
    param([int] $DiskNumber, [string] $Style, [long] $Offset, [long] $Size)
    $create = "create partition primary offset=$($Offset / 1KB) size=$($Size / 1MB)"
    $format = "format quick fs=ntfs label=`"$RecoveryLabel`""
    if ($Style -eq 'GPT') {
        Invoke-DiskPart $DiskNumber @("$create id=$RecoveryGpt", 'gpt attributes=0x8000000000000001', $format)
    }
    else {
        Invoke-DiskPart $DiskNumber @($create, $format, 'set id=27')
    }
}

# What BitLocker does with the volume: 'Off' or 'On'. Without its commands, Windows cannot have such a volume.
function Get-Protection {
    if (-not (Get-Command -Name Get-BitLockerVolume -ErrorAction SilentlyContinue)) {
        return 'Off'
    }
    $found = Get-BitLockerVolume -MountPoint $env:SystemDrive
    if ("$($found.VolumeStatus)" -notin 'FullyDecrypted', 'FullyEncrypted') {
        throw "refused: BitLocker is at work on $env:SystemDrive ($($found.VolumeStatus)); run again when it is done"
    }
    return "$($found.ProtectionStatus)"
}

# What is in the recovery partition beside the folder of Windows RE. The partition needs no drive letter for that.
function Get-OtherFile {
    param($Partition, [switch] $WithImage)
    $root = "$(($Partition | Get-Volume).Path)"
    if (-not $root.EndsWith('\')) {
        throw "refused: the recovery partition has no volume, but '$root'"
    }
    $names = @(Get-ChildItem -LiteralPath $root -Force | ForEach-Object { $_.Name })
    $inner = @()
    if ($names -contains 'Recovery') {
        $inner = @(Get-ChildItem -LiteralPath "${root}Recovery" -Force | ForEach-Object { $_.Name })
    }
    if ($WithImage -and $inner -notcontains 'WindowsRE') {
        throw "refused: Windows RE is in the recovery partition, but \Recovery\WindowsRE is not seen there"
    }
    $names | Where-Object { $_ -notin 'Recovery', 'System Volume Information', '$RECYCLE.BIN' }
    $inner | Where-Object { $_ -ne 'WindowsRE' } | ForEach-Object { "Recovery\$_" }
}

# Disables Windows RE, which puts it on C:. If it is not there, Windows RE is enabled again.
function Invoke-RecoveryRelease {
    $enabled = Test-RecoveryUse
    if ($enabled) {
        $null = Invoke-Program 'reagentc' @('/disable')
    }
    try {
        if (-not (Test-Path -LiteralPath $Image)) {
            throw "refused: reagentc /disable has not put Windows RE to $Image"
        }
    }
    catch {
        if ($enabled) {
            $null = Invoke-Program 'reagentc' @('/enable')
        }
        throw
    }
}

if ([Environment]::Is64BitOperatingSystem -and -not [Environment]::Is64BitProcess) {
    throw 'refused: run it in the 64-bit PowerShell, for the 32-bit one does not see reagentc'
}
Update-HostStorageCache
$system = Get-Partition -DriveLetter $env:SystemDrive.Substring(0, 1)
$disk = Get-Disk -Number $system.DiskNumber
$style = "$($disk.PartitionStyle)"
if ($style -notin 'GPT', 'MBR') {
    throw "refused: the disk of $env:SystemDrive has a partition table of type $style"
}
if ($disk.IsOffline -or $disk.IsReadOnly) {
    throw "refused: the disk of $env:SystemDrive is offline or read-only"
}
if (-not (Test-Type -Partition $system -Gpt $DataGpt -Mbr $DataMbr)) {
    throw "refused: the partition of $env:SystemDrive is of type $($system.GptType)$($system.MbrType), not data"
}
$extended = @(Get-Partition -DiskNumber $disk.Number | Where-Object { $style -eq 'MBR' -and $_.MbrType -in 0x05, 0x0f })
if ($extended.Count) {
    throw "refused: the disk of $env:SystemDrive has an extended partition"
}
$fileSystem = "$(($system | Get-Volume).FileSystem)"
if ($fileSystem -ne 'NTFS') {
    throw "refused: $env:SystemDrive has $fileSystem on it, not NTFS"
}
$identity = if ($style -eq 'GPT') { "$($disk.Guid)" } else { "$($disk.Signature)" }
$end = [long] $disk.Size
if ($style -eq 'MBR') {
    $end = [math]::Min($end, [long] 4294967295 * [long] $disk.LogicalSectorSize)
}
$end = Get-WholeMiB ($end - 1MB) # room for the second header of a GPT

$behind = @(Get-PartitionBehind $system)
$record = Read-Record
if ($null -ne $record -and ($record.Disk -ne $identity -or $record.Size -lt 1MB -or $record.Size % 1MB)) {
    throw "refused: HKLM:\$RecordKey is of another disk, $($record.Disk); delete it if nothing of it is needed"
}
$found = @($behind | ForEach-Object { "partition $($_.PartitionNumber), $($_.Type), $($_.Size) bytes" }) -join '; '
if ($behind.Count -gt 1) {
    throw "refused: several partitions lie behind ${env:SystemDrive}: $found"
}

$last = if ($behind.Count) { $behind[0] } else { $null }
$made = Test-Made $last $record
if ($made -and (Test-RecoveryType $last) -and (Test-RecoveryUse $last)) {
    $made = $false
    $record = $null # the run was stopped when all was done
    if (-not $WhatIfPreference) {
        Clear-Record
    }
}
$old = $null -ne $last -and -not $made
if ($old) {
    if (-not (Test-RecoveryType $last)) {
        throw "refused: something else than a recovery partition lies behind ${env:SystemDrive}: $found"
    }
    $stopped = $null -ne $record -and $last.Offset -eq $record.OldOffset
    $used = Test-RecoveryUse $last
    if (-not $stopped -and -not $used) {
        throw "refused: Windows RE does not use the recovery partition behind ${env:SystemDrive}: $found"
    }
}
$plain = $null -eq $last -and $null -eq $record
if ($plain) {
    $supported = Get-PartitionSupportedSize -DiskNumber $disk.Number -PartitionNumber $system.PartitionNumber
    $size = [long] $supported.SizeMax
    $lines = @()
}
else {
    $recoverySize = if ($old) { Get-WholeMiB ([long] $last.Size + 1MB - 1) } else { $record.Size }
    $target = Get-WholeMiB ($end - $recoverySize)
    $size = $target - [long] $system.Offset
    $lines = @("the recovery partition, $recoverySize bytes, is made anew at the end of the disk with Windows RE")
}
$gain = $size - [long] $system.Size
if ($gain -gt 0) {
    $lines += "$env:SystemDrive $($system.Size) -> $size bytes"
}
if ($null -eq $record -and $gain -lt $Least) {
    Write-Output "$env:SystemDrive has nothing to grow"
    return
}
if ($gain -lt 0) {
    throw "refused: $env:SystemDrive leaves no room for the recovery partition, $recoverySize bytes, behind it"
}
if ($old) {
    $others = @(Get-OtherFile -Partition $last -WithImage:$used)
    if ($others.Count) {
        throw "refused: the recovery partition has other files than Windows RE in it: $($others -join ', ')"
    }
}
$protection = Get-Protection
if ($protection -ne 'Off') {
    if (-not $SuspendBitLocker) {
        throw "refused: BitLocker protects $env:SystemDrive; with -SuspendBitLocker it is suspended until a restart"
    }
    $lines = @("BitLocker is suspended on $env:SystemDrive until Windows has started again") + $lines
}
if (-not $PSCmdlet.ShouldProcess("disk $($disk.Number)", $lines -join '; ')) {
    return
}

if ($protection -ne 'Off') {
    $null = Suspend-BitLocker -MountPoint $env:SystemDrive -RebootCount 1 -Confirm:$false
}
$growth = @{ DiskNumber = $disk.Number; PartitionNumber = $system.PartitionNumber; Confirm = $false }
if ($plain) {
    Resize-Partition @growth -Size $size
    Write-Output $lines
    return
}
$oldOffset = if ($old) { [long] $last.Offset } else { $record.OldOffset }
Write-Record -Disk $identity -OldOffset $oldOffset -Target $target -Size $recoverySize
try {
    Invoke-RecoveryRelease
}
catch {
    if ($old -and (Test-RecoveryUse $last)) {
        Clear-Record # nothing has changed
    }
    throw
}
if ($null -ne $last) {
    Invoke-RecoveryRemoval $last
}
$failure = $null
if ($gain -gt 0) {
    try {
        Resize-Partition @growth -Size $size
    }
    catch {
        $failure = $_ # Windows RE gets its partition first
    }
}
Invoke-RecoveryCreation -DiskNumber $disk.Number -Style $style -Offset $target -Size $recoverySize
$null = Invoke-Program 'reagentc' @('/enable')
$now = @(Get-PartitionBehind $system)
$right = $now.Count -eq 1 -and $now[0].Offset -eq $target -and (Test-RecoveryType $now[0])
if (-not $right -or -not (Test-RecoveryUse $now[0])) {
    throw 'Windows RE is not in the new recovery partition; see: reagentc /info'
}
Clear-Record
if ($null -ne $failure) {
    throw $failure
}
Write-Output $lines
